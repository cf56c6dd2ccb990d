"""Populations: who copies whom and what varies, from the journal alone; what is told of it; what an operator writes for it."""

import math
from typing import Any

import pytest
from rljob.api import ManifestError
from rljob.api.experiment_check import parse_experiment
from rljob.api.status import RLJobStatus
from rljob_operator.experiments.driver import judging, refusal
from rljob_operator.experiments.population import schedule
from rljob_operator.experiments.summary import in_words
from rljob_operator.kube.apiserver.resources import RLJOBS

from tests.support import experiment_cluster
from tests.support.experiment_world import World, document, lived, population

RATE = "algorithm.learningRate"


def falling(trial: int, seed: int, frames: int) -> float:
    """Returns below zero, as Pong's: a relative gap would have the wrong sign. Member 2 is the best, 0 the worst."""
    return -10 - 5 * (2 - trial) ** 2 + frames / 1000


def test_members_begin_as_the_trials_of_a_random_search_with_the_seed() -> None:
    drawn = document(
        4, search={"random": {"trials": 4, "seed": 3}, "parameters": population()["spec"]["population"]["parameters"]}
    )
    settings, others = ([parse_experiment(each).settings(n) for n in range(4)] for each in (drawn, population()))
    assert settings == others


def test_a_member_far_below_copies_the_checkpoint_that_was_judged_and_varies_within_bounds() -> None:
    explore = {"factor": 5, "probability": 1, "resample": 0}
    world = World(population(explore=explore), falling)
    state = lived(world)
    copies = [entry for entry in world.entries() if entry["kind"] == "Copy"]
    assert copies
    for entry in copies:
        own, donor = (entry["scores"][str(entry[name])] for name in ("trial", "donor"))
        assert donor[0] - own[0] >= 2 * math.hypot(own[1], donor[1])
        frames = donor[2]
        assert entry["fork"] == {
            "id": f"copy-{entry['trial']}-{entry['judgedRung']}",
            "from": f"file:///{entry['donor']}",
            "digest": f"sha256:{frames:064d}",
        }
        assert 1e-4 <= entry["set"][RATE] <= 1e-2
        assert entry["by"][RATE] in ("x 5", "/ 5")
        said = in_words(state, entry)
        assert (
            f"trial {entry['trial']} copies trial {entry['donor']}, {donor[0]:.2f} +- 1.00 against {own[0]:.2f}" in said
        )
    run, done = (
        state.runs[copies[-1]["trial"], 1],
        {"type": "Complete", "status": "True", "reason": "StepBudgetReached"},
    )
    ended = RLJobStatus.model_validate({"conditions": [{**done, "lastTransitionTime": "2026-11-27T12:00:00Z"}]})
    assert refusal(run, ended) == "", "it was judged since, so that its fork was done"
    run.scores = run.scores[: copies[-1]["judgedRung"] + 1]
    assert refusal(run, ended) == "the run had ended before"
    state = lived(world)
    # The line of the settings of whoever copied last is one job's: donors' before its own, in order.
    last = state.runs[copies[-1]["trial"], 1]
    line = schedule(state, last, len(last.scores) - 1)
    assert (line[0]["afterRawFrames"], line[-1]["set"]) == (0, copies[-1]["set"])
    assert [each["afterRawFrames"] for each in line] == sorted(each["afterRawFrames"] for each in line)


def test_no_one_copies_within_the_noise_and_the_reference_never() -> None:
    close = World(population(), lambda trial, seed, frames: trial / 10)
    assert {entry["kind"] for entry in _evolved(close)} == {"Keep"}
    apart = World(population(reference=True), falling)
    assert {entry["kind"] for entry in _evolved(apart) if entry["trial"] == 0} == {"Keep"}


def _evolved(world: World) -> list[dict[str, Any]]:
    lived(world)
    return [entry for entry in world.entries() if entry["kind"] in ("Copy", "Keep")]


def test_a_fork_that_was_refused_leaves_a_member_its_own_weights_in_its_line() -> None:
    world = World(population(), falling)
    state = lived(world)
    run = next(run for run in state.runs.values() if run.line)
    before, at = dict(run.line[-1]), run.line[-1]["rung"]
    entry = {"kind": "Refused", "trial": run.trial, "seed": 1, "id": before["fork"]["id"], "why": "another digest"}
    state.apply(entry)
    assert (run.fork, "goes on with its own weights" in in_words(state, entry)) == (None, True)
    line = schedule(state, run, at)
    assert line[0]["set"] == state.known.settings(run.trial) or len(line) > 2
    assert (line[-1]["set"], line[-1]["afterRawFrames"] > 0) == (before["set"], True)


def test_members_of_a_step_play_the_same_games_and_their_checkpoints_are_kept_in_turn() -> None:
    state = lived(World(population(), falling))
    words = [judging(state.known, state.runs[trial, 1], rung) for trial in (0, 1) for rung in (0, 1)]
    seeds, kept = ([each[each.index(name) + 1] for each in words] for name in ("--seed", "--scored"))
    assert (seeds[:2], kept) == (seeds[2:], ["scored-0", "scored-1"] * 2)
    assert "--scored" not in judging(state.known, state.runs[0, 1], len(state.known.rungs)), (
        "fresh games judge what was kept"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": 1}, "spec.population.size: got 1; allowed: an integer from 2"),
        (
            {"parameters": {"algorithm.gamma": {"values": [0.9]}}},
            "allowed: live fields, which a running learner takes; with PPO algorithm.learningRate",
        ),
        ({"parameters": {RATE: {"uniform": {"min": 2, "max": 1}}}}, f"parameters[{RATE}].uniform.max: got 1"),
        (
            {"readyRawFrames": 9000},
            "spec.population.readyRawFrames: got 9000; allowed: at most one less than budget.rawFrames",
        ),
        (
            {"readyRawFrames": 10},
            "spec.population.readyRawFrames: got 10; allowed: at least the raw frames after burnInRawFrames / 100",
        ),
    ],
)
def test_what_can_be_no_population_is_refused_by_path(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ManifestError) as refused:
        parse_experiment(population(**change))
    assert said in str(refused.value)


def test_nothing_else_chooses_beside_a_population_and_no_decay_beside_a_rate_that_varies() -> None:
    other = population()
    other["spec"] |= {"seeds": 2, "search": document(2)["spec"]["search"], "prune": {"median": {"afterRawFrames": 10}}}
    other["spec"]["template"]["spec"]["algorithm"] = {
        "type": "PPO",
        "learningRateDecaySteps": 9,
        "learningRateFinal": 0,
    }
    with pytest.raises(ManifestError) as refused:
        parse_experiment(other)
    paths = [problem.path for problem in refused.value.problems]
    assert {"spec.seeds", "spec.search", "spec.prune", f"spec.population.parameters[{RATE}]"} <= set(paths)


@pytest.mark.parametrize("parallelism", [4, 2])
def test_on_a_cluster_weights_and_settings_come_in_one_write_and_only_members_that_take_turns_stop(
    parallelism: int,
) -> None:
    experiment = population(parallelism=parallelism)
    experiment["spec"]["template"]["spec"]["checkpoint"] = {"storage": {"objectStore": {"url": "s3://b/p"}}}
    world = experiment_cluster.World(experiment, falling)
    patched: list[dict[str, Any]] = []
    patch = world.patch

    async def noted(resource: Any, namespace: str, name: str, change: dict[str, Any], **how: Any) -> Any:
        patched.append(change.get("spec", {}) if resource is RLJOBS else {})
        return await patch(resource, namespace, name, change, **how)

    world.patch = noted  # type: ignore[method-assign]
    status = world.live()
    assert (status["done"], world.state) == (4, "Complete")
    copies = {entry["trial"]: entry for entry in world.entries() if entry["kind"] == "Copy"}
    for trial, entry in copies.items():
        spec = world.of(RLJOBS)[f"a-{trial}"]["spec"]
        assert (spec["fork"], spec["algorithm"]["learningRate"]) == (entry["fork"], entry["set"][RATE])
    forks = [change for change in patched if "fork" in change]
    assert len(forks) == len([entry for entry in world.entries() if entry["kind"] == "Copy"]) > 0
    stopped = [change for change in patched if change.get("suspend") is True]
    assert bool(stopped) == (parallelism < 4)


def test_a_member_that_is_deleted_in_the_middle_of_a_fork_begins_anew_with_it() -> None:
    experiment = population()
    experiment["spec"]["template"]["spec"]["checkpoint"] = {"storage": {"objectStore": {"url": "s3://b/p"}}}
    world = experiment_cluster.World(experiment, falling)
    while not (copies := [entry for entry in world.entries() if entry["kind"] == "Copy"]):
        world.turns()
    name = f"a-{copies[0]['trial']}"
    del world.objects["rljobs", name]
    world.frames[name], world.states[name] = 0, {}
    world.settle()
    assert world.of(RLJOBS)[name]["spec"]["fork"] == copies[0]["fork"]
    assert (world.live()["failed"], world.state) == (0, "Complete")

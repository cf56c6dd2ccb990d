"""Suggestions by Optuna's TPE: functions of the journal, better than draws, and each its own. They need the extra [optuna]."""

import json
import math
import statistics
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import pytest
from rljob_operator.experiments.decide import decide
from rljob_operator.experiments.journal import JournalProblem, line, replayed
from rljob_operator.experiments.state import ExperimentState
from rljob_operator.experiments.summary import in_words

from tests.support.experiment_world import HALVING, World, document, lived, spread

pytestmark = pytest.mark.skipif(
    getattr(find_spec("optuna"), "origin", None) is None, reason="Optuna is not installed: pip install 'rljob[optuna]'"
)
RATE, EPOCHS, COST = "algorithm.learningRate", "algorithm.epochs", "algorithm.entropyCost"
PARAMETERS = {
    RATE: {"logUniform": {"min": 1e-5, "max": 1e-1}},
    EPOCHS: {"uniform": {"min": 1, "max": 20}},
    COST: {"values": [0.0, 0.01, 0.1]},
}


def searched(trials: int, seed: int = 0, kind: str = "tpe", **spec: Any) -> dict[str, Any]:
    how = {"trials": trials, "seed": seed, **({"startupTrials": 4} if kind == "tpe" else {})}
    return document(trials, search={kind: how, "parameters": PARAMETERS}, **spec)


def height(settings: Mapping[str, Any]) -> float:
    """Best where the learning rate is 1e-3, epochs are 7, and the cost is 0.01."""
    away = abs(math.log10(settings[RATE]) + 3) + abs(settings[EPOCHS] - 7) / 5
    return -away - (0 if settings[COST] == 0.01 else 1)


def climbed(experiment: dict[str, Any]) -> ExperimentState:
    """The experiment to its end, each run scored by `height`, the oldest that plays first."""
    state = ExperimentState()
    state.apply({"kind": "Settings", "experiment": experiment})
    while state.end is None:
        if (entry := decide(state)) is not None:
            state.apply(json.loads(line(entry)))
            continue
        run = state.active[0]
        score = {"mean": height(state.known.settings(run.trial)), "standardError": 0.1, "episodes": 10, "rawFrames": 9}
        state.apply({"kind": "Score", "trial": run.trial, "seed": 1, "solved": False, **score})
    return state


def test_on_a_known_function_it_beats_draws_in_the_median_of_twenty_seeds() -> None:
    best: dict[str, list[float]] = {"tpe": [], "random": []}
    for seed in range(20):
        for kind, found in best.items():
            found.append(climbed(searched(30, seed, kind, parallelism=2)).ranking()[0].mean)
    assert statistics.median(best["tpe"]) > statistics.median(best["random"]) + 0.1, best
    assert sum(ours > drawn for ours, drawn in zip(best["tpe"], best["random"], strict=True)) >= 15


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("spec", [{}, {"prune": HALVING, "maxFailedTrials": 2, "seeds": 2}], ids=["plain", "halving"])
def test_killed_at_every_step_it_suggests_the_same(spec: dict[str, Any]) -> None:
    experiment, fails = searched(8, **spec), frozenset({2} if spec else {})
    calm = World(experiment, spread, fails=fails)
    calm.controller()
    assert b'"by":"Optuna' in calm.text
    for at in range(1, calm.steps + 1):
        world = World(experiment, spread, kill_at=at, fails=fails)
        lived(world)
        assert world.text == calm.text, at


@pytest.mark.parametrize(("trials", "epochs"), [(12, 12), (12, 20)])
def test_nothing_is_suggested_twice(trials: int, epochs: int) -> None:
    """Near the best of a small space the sampler would suggest the same again and again."""
    how = {"trials": trials, "startupTrials": 4}
    parameters = {EPOCHS: {"uniform": {"min": 1, "max": epochs}}, RATE: {"values": [1e-3]}, COST: {"values": [0.01]}}
    known = climbed(document(trials, search={"tpe": how, "parameters": parameters})).known
    assert len({known.settings(trial)[EPOCHS] for trial in range(trials)}) == trials


def test_it_draws_until_enough_have_a_score_and_then_every_suggestion_is_another() -> None:
    """Also of those that start at the same time: a new sampler each time would repeat itself if its seed were the same."""
    world = World(searched(24, parallelism=8), spread)
    state = lived(world)
    starts = [entry for entry in world.entries() if entry["kind"] == "Start"]
    assert ["by" in entry for entry in starts] == [False] * 11 + [True] * 13
    assert len({json.dumps(entry["set"]) for entry in starts}) == 24
    for trial, suggested in ((entry["trial"], entry["set"]) for entry in starts):
        made = state.known.manifest(trial, 1, 9000)["spec"]["algorithm"]
        assert (state.known.settings(trial), made["learningRate"]) == (suggested, suggested[RATE])
        assert isinstance(suggested[EPOCHS], int)


def test_a_suggestion_that_makes_no_valid_job_is_made_again() -> None:
    parameters = {
        "algorithm.batchSize": {"values": [8, 12, 16, 20]},
        "algorithm.minibatches": {"values": [3, 4, 5, 7]},
    }
    how = {"trials": 6, "startupTrials": 2}
    world = World(document(6, search={"tpe": how, "parameters": parameters}), spread)
    state = lived(world)
    assert not [run for run in state.runs.values() if run.why]
    left_out = [entry for entry in world.entries() if entry.get("leftOut")]
    assert left_out
    assert in_words(state, left_out[0]).endswith(
        f"left out: {left_out[0]['leftOut']} suggestions that make no valid job"
    )
    assert replayed(world.text.splitlines(keepends=True)).end is not None


def test_the_order_in_which_parameters_are_written_does_not_matter() -> None:
    other = searched(12)
    other["spec"]["search"]["parameters"] = dict(reversed(PARAMETERS.items()))
    found = [World(each, spread) for each in (searched(12), other)]
    for world in found:
        lived(world)
    assert found[0].text == found[1].text


def test_what_was_suggested_stands_as_it_was_written_and_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(searched(8), spread)
    lived(world)
    lines = world.text.splitlines(keepends=True)
    at = next(i for i, text in enumerate(lines) if b'"by":' in text)
    entry = json.loads(lines[at])
    other = {**entry, "by": "Optuna 0.1", "set": {**entry["set"], RATE: 0.00123}}
    monkeypatch.setattr("rljob_operator.experiments.decide.import_module", lambda name: 1 / 0)
    assert replayed([*lines[:at], line(other)]).known.settings(entry["trial"])[RATE] == 0.00123
    for wrong in (
        {**other, "rawFrames": 1},
        {**other, "set": {**entry["set"], RATE: 0.5}},
        {**other, "set": {**entry["set"], RATE: "fast"}},
        {**other, "set": {**entry["set"], COST: 0.02}},
        {**other, "set": {**entry["set"], EPOCHS: 2.5}},
        {**other, "set": {RATE: 0.00123}},
        {k: v for k, v in other.items() if k != "by"},
    ):
        with pytest.raises(JournalProblem, match="the lines before it lead to"):
            replayed([*lines[:at], line(wrong)])


def test_settings_that_are_taken_over_keep_what_was_suggested() -> None:
    before = lived(World(searched(8), spread))
    suggested = dict(before.known.suggested)
    before.apply({"kind": "Settings", "experiment": searched(8, parallelism=1)})
    assert before.known.suggested == suggested != {}

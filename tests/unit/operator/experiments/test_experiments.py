"""The core of experiments: simulated worlds, in which the controller is killed at every step, and synthetic learning curves."""

import copy
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rljob.api.experiment_check import parse_experiment
from rljob_operator.experiments.decide import decide
from rljob_operator.experiments.driver import Driver, judging, scored
from rljob_operator.experiments.journal import JournalProblem, replayed
from rljob_operator.experiments.state import ExperimentState, Mismatch, RunState
from rljob_operator.experiments.summary import best_in_words, fresh_verdict, in_words, rows, summary
from rljob_operator.local import experiment_runs
from rljob_operator.local.experiment_runs import ExperimentFolder

from tests.support.experiment_world import CASES, HALVING, MEDIAN, World, document, learning, lived, spread


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_killed_at_every_step_it_ends_as_it_would_have(case: str) -> None:
    """No run is doubled, no decision made twice or otherwise, no line lost: the journal is that of an undisturbed life, to the
    byte."""
    experiment, fails = CASES[case]
    calm = World(experiment, spread, fails=fails)
    calm.controller()
    assert calm.steps > 20
    for at in range(1, calm.steps + 1):
        world = World(experiment, spread, kill_at=at, fails=fails)
        lived(world)
        assert (world.text, world.sent, world.played) == (calm.text, calm.sent, calm.played), at
    assert calm.most_at_once <= experiment["spec"]["parallelism"]


def test_what_the_cases_lead_to() -> None:
    ends = {case: lived(World(experiment, spread, fails=fails)) for case, (experiment, fails) in CASES.items()}
    reasons = {case: state.end["reason"] for case, state in ends.items() if state.end is not None}
    assert (reasons.pop("too many fail"), set(reasons.values())) == ("TooManyFailedTrials", {"Completed"})
    halving = ends["halving"]
    # 37 * trial % 101 is largest for trial 5; it alone plays all, and then with the second seed.
    best = halving.end["best"]
    assert (best["trial"], best["seeds"]) == (5, [1, 2])
    assert (best["mean"], best["standardError"]) == pytest.approx((5 * 37 % 101 + 1.5 + 9, 0.5))
    assert {run.state for run in halving.runs.values()} == {RunState.DONE, RunState.PRUNED}
    assert {key for key, run in ends["failing"].runs.items() if run.state is RunState.FAILED} == {(1, 1), (3, 1)}
    assert len(ends["seeds"].runs) == 4


def test_where_all_trials_fail_that_is_the_reason_and_none_is_left_out() -> None:
    state = lived(World(document(3), spread, fails=frozenset({0, 1, 2})))
    assert (state.end["reason"], state.end["best"]) == ("AllTrialsFailed", None)
    some = lived(World(document(3), spread, fails=frozenset({1})))
    assert [(each["trial"], each["state"], each["mean"]) for each in rows(some)] == [
        (2, "Done", 84.0),
        (0, "Done", 10.0),
        (1, "Failed", None),
    ]


def test_of_one_setting_nothing_is_chosen_so_its_scores_are_its_verdict() -> None:
    alone, chosen = lived(World(document(1, seeds=3), spread)), lived(World(document(2, seeds=3), spread))
    assert {key: score.mean for key, score in alone.verdicts.items()} == {(0, 1): 10.0, (0, 2): 11.0, (0, 3): 12.0}
    assert fresh_verdict(alone) == {"mean": 11.0, "standardError": 0.5774, "episodes": 100}
    for state in (chosen, lived(World(document(1), spread, fails=frozenset({0})))):  # the games of the first chose it
        assert (state.verdicts, fresh_verdict(state)) == ({}, None)


def test_the_best_is_the_best_policy_that_was_judged_and_one_that_falls_back_says_so() -> None:
    world = World(
        document(3, prune=HALVING, parallelism=1), lambda trial, _, frames: 100 - frames / 100 if trial == 2 else trial
    )
    state = lived(world)
    (run,) = state.best()
    assert (run.key, run.best.mean, run.scores[-1].mean, state.end["best"]["mean"]) == ((2, 1), 90.0, 10.0, 90.0)
    first = rows(state)[0]
    assert (first["mean"], first["newestMean"], first["rawFrames"], first["state"]) == (90.0, 10.0, 1000, "Done")
    back = "fell back to 10.00 from 90.00 after 1,000 raw frames, which is kept"
    assert in_words(state, world.entries()[-2]).endswith(f"after 9,000 raw frames; it {back}")
    fair = "of 3 judged at 1,000 raw frames trial 2 was the best, 90.00"
    assert best_in_words(state).endswith(f"; {back}; {fair}")
    assert judging(state.known, run, 2)[-2:] == ["--keep-from", "90.0"]
    assert "--keep-from" not in judging(state.known, run, 3), "fresh games judge what was kept"


def test_the_median_ends_what_is_below_it_and_needs_enough_others() -> None:
    world = World(document(6, prune=MEDIAN, parallelism=1), lambda trial, seed, frames: -trial)
    state = lived(world)
    pruned = [entry for entry in world.entries() if entry["kind"] == "Prune"]
    assert [entry["trial"] for entry in pruned] == [3, 4, 5]
    assert pruned[0] | {"score": -3, "judged": 4, "bound": -1, "rung": 0} == pruned[0]
    assert [run.trial for run in state.runs.values() if run.state is RunState.DONE] == [0, 1, 2]


def test_halving_costs_little_and_finds_one_of_the_best_three() -> None:
    """Acceptance row 8: at most 40 % of the frames, the full search's winner among its best three in four seeds of five."""
    found, shares = [], []
    for seed in range(5):
        curve, true = learning(seed)
        world = World(document(27, prune=HALVING, parallelism=4), curve)
        best = [ranked.trial for ranked in lived(world).ranking()[:3]]
        found.append(true.index(max(true)) in best)
        shares.append(world.played / (27 * 9000))
    assert (max(shares) <= 0.4, sum(found) >= 4) == (True, True), (shares, found)


def test_a_journal_that_was_changed_is_refused_with_its_line() -> None:
    world = World(document(4, prune=HALVING), spread)
    lived(world)
    lines = world.text.splitlines(keepends=True)
    assert replayed(lines).end is not None
    at = next(i for i, text in enumerate(lines) if b'"Score"' in text)
    changed = lines[at].replace(b'"mean":', b'"mean":9')
    for broken, said in (
        ([*lines[:at], changed, *lines[at + 1 :]], "the lines before it lead to"),
        ([*lines[:2], *lines[3:]], "line 3 of the journal"),
        ([*lines, lines[-1]], "lead to no decision"),
        ([*lines[:3], b"{\n"], "line 4 of the journal"),
        ([b'{"kind":"TimeUp"}\n', b'{"kind":"Score","trial":0,"seed":1}\n'], "line 2"),
        ([lines[0], *lines[1:4], b'{"kind":"Graft"}\n'], "unknown kind 'Graft'"),
        ([b"[]\n"], "line 1"),
    ):
        with pytest.raises(JournalProblem, match=said):
            replayed(broken)


def settings(experiment: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "Settings", "experiment": experiment}


def begun(experiment: dict[str, Any]) -> ExperimentState:
    """An experiment whose first runs play."""
    state = ExperimentState()
    state.apply(settings(experiment))
    while (entry := decide(state)) is not None:
        state.apply(entry)
    return state


def test_what_may_change_of_an_experiment_that_has_begun() -> None:
    state = ExperimentState()
    state.apply(settings(document(3, maxFailedTrials=0)))
    state.apply(settings(document(3, budget={"rawFrames": 9000, "seconds": 5}, parallelism=1)))
    assert state.known.spec.parallelism == 1
    tracked = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {**document(3)["spec"]["template"]["spec"], "tracking": {"wandb": {}}},
    }
    state.apply(settings(document(4, seeds=2, template=tracked)))
    slower = {"spec": {**tracked["spec"], "algorithm": {"gamma": 0.5}}}
    stored = {"spec": {**tracked["spec"], "checkpoint": {"storage": {"objectStore": {"url": "s3://a/b"}}}}}
    listed = [{"algorithm.learningRate": rate} for rate in (1e-3, 1e-4, 1e-5, 1e-6)]
    for other in (
        document(3, seeds=2),
        document(4),
        document(4, seeds=2, prune=HALVING),
        document(4, seeds=2, budget={"rawFrames": 1}),
        document(4, seeds=2, search={"list": listed}),
        document(4, seeds=2, template=slower),
        document(4, seeds=2, template=stored),
    ):
        with pytest.raises(
            Mismatch, match=r"only parallelism, maxFailedTrials and budget\.seconds may change, and seeds"
        ):
            state.apply(settings(other))


def test_a_list_may_grow_at_its_end() -> None:
    rates = [{"algorithm.learningRate": rate} for rate in (1e-3, 1e-4, 1e-5)]
    state = begun(document(0, search={"list": rates[:2]}))
    with pytest.raises(Mismatch, match="list grow"):
        state.apply(settings(document(0, search={"list": rates[::-1]})))
    state.apply(settings(document(0, search={"list": rates})))
    assert state.known.trials == 3


@pytest.mark.long
@pytest.mark.parametrize("spec", [{"prune": HALVING}, {"prune": MEDIAN}, {}], ids=["halving", "median", "plain"])
def test_one_that_has_ended_goes_on_with_more_trials_and_seeds(spec: dict[str, Any]) -> None:
    """Killed at every step, it plays no run again, and tries what it would have tried had it had as many trials at first."""
    ended = World(document(3, **spec), spread)
    lived(ended)
    more, whole = document(6, seeds=2, **spec), World(document(6, seeds=2, **spec), spread)
    lived(whole)
    calm = copy.deepcopy(ended)
    calm.experiment = more
    state = calm.controller()
    assert calm.text.startswith(ended.text)
    starts, of_whole = (
        {entry["trial"]: entry["set"] for entry in world.entries() if entry["kind"] == "Start"}
        for world in (calm, whole)
    )
    assert starts == of_whole
    assert len({run.trial for run in state.runs.values()}) == 6
    assert any(run.seed == 2 for run in state.runs.values())
    assert [entry["kind"] for entry in calm.entries()].count("End") == 2
    for at in range(ended.steps + 1, calm.steps + 1):
        world = copy.deepcopy(ended)
        world.experiment, world.kill_at = more, at
        lived(world)
        assert (world.text, world.sent, world.played) == (calm.text, calm.sent, calm.played), at


def test_time_that_is_up_ends_it_with_the_best_so_far_and_with_more_it_goes_on_with_the_runs_that_had_to_end() -> None:
    state = begun(document(2, budget={"rawFrames": 9000, "seconds": 5}, parallelism=2))
    score = {"mean": 5.0, "standardError": 1.0, "episodes": 100, "rawFrames": 9000}
    state.apply({"kind": "Score", "trial": 1, "seed": 1, "solved": False, **score})
    state.apply({"kind": "TimeUp", "seconds": 5.5})
    state.apply(decide(state) or {})
    state.apply({"kind": "Verdict", "trial": 1, "seed": 1, **score})
    assert (state.end["reason"], state.end["best"]["trial"], state.seconds, state.active) == ("TimeUp", 1, 5.5, [])
    state.apply(settings(document(2, budget={"rawFrames": 9000, "seconds": 50}, parallelism=2)))
    assert [run.trial for run in state.active] == [0]
    assert (state.end, state.time_up, state.verdicts, decide(state)) == (None, False, {}, None)


def test_why_a_run_ends_is_said_with_its_score_and_how_many_it_was_one_of() -> None:
    entry = {"kind": "Prune", "trial": 2, "seed": 1, "score": 21.4, "judged": 3, "bound": 31.6}
    said = "trial 2 ends here: 21.40, one of 3 judged there; from 31.60 on they go on"
    assert in_words(begun(document(1)), entry) == said


def test_a_solved_run_needs_no_more_frames_and_a_score_that_is_not_finite_fails_its_trial_alone() -> None:
    score = {"kind": "Score", "trial": 0, "seed": 1, "solved": True}
    score |= {"standardError": 1.0, "episodes": 100, "rawFrames": 700}
    state = begun(document(1, prune=HALVING))
    state.apply({**score, "mean": 5.0})
    assert (decide(state) or {})["kind"] == "End"
    with pytest.raises(ValueError, match="'nan', which is no number"):
        begun(document(1)).apply({**score, "mean": math.nan})
    for figures in ({"mean": None}, {"mean": -1e200}, {"mean": -1.0, "standard_error": math.inf}):
        assert "which is no number that counts anything" in scored({"episodes": 5, **figures}, 700, "")["why"]


def test_a_thousand_trials_fit_into_a_status() -> None:
    """Acceptance row 9, as far as the core goes: at most 100 kB, whatever the settings' length, and a whole journal."""
    experiment = document(1000, prune={"halving": {"firstRawFrames": 3000}}, parallelism=50)
    experiment["spec"]["search"]["parameters"]["algorithm.network"] = {"values": ["a" * 200 + ":f"]}
    world = World(experiment, spread)
    assert len(json.dumps(summary(lived(world)), indent=2)) <= 100_000
    starts = [(entry["trial"], entry["seed"]) for entry in world.entries() if entry["kind"] == "Start"]
    assert sorted(starts) == [(trial, 1) for trial in range(1000)]


def test_suggested_settings_that_make_no_job_fail_the_run_and_not_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment_runs, "gone_on", lambda *_: SimpleNamespace(poll=lambda: None))
    experiment = parse_experiment(document(3, seeds=2))
    experiment.suggested[1] = {"algorithm.learningRate": 5}
    opened = ExperimentFolder(tmp_path)
    opened.take(experiment.document)
    opened.state.known.suggested.update(experiment.suggested)
    runs = experiment_runs.Runs(tmp_path, opened.state.known, None)
    driver = Driver(opened, runs)
    driver.turn()
    runs.lead(driver)
    ((trial, why),) = [(entry["trial"], entry["why"]) for entry in opened.new if entry["kind"] == "Fail"]
    assert (trial, "spec.algorithm.learningRate: got 5" in why) == (1, True)

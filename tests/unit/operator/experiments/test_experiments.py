"""The core of experiments: simulated worlds, in which the controller is killed at every step, and synthetic learning curves."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from rljob_operator.experiments.decide import decide
from rljob_operator.experiments.journal import Entry, JournalProblem, line, replayed, whole_lines
from rljob_operator.experiments.state import ExperimentState, Mismatch, Run, RunState
from rljob_operator.experiments.summary import summary

Curve = Callable[[int, int, int], float]
"""(trial, seed, raw frames) -> mean return."""
HALVING = {"halving": {"firstRawFrames": 1000, "factor": 3}}
MEDIAN = {"median": {"afterRawFrames": 2000, "minTrials": 3}}


def document(trials: int, **spec: Any) -> dict[str, Any]:
    rate = {"logUniform": {"min": 1e-4, "max": 1e-2}}
    whole = {
        "template": {"spec": {"environment": {"id": "CartPole-v1"}}},
        "budget": {"rawFrames": 9000},
        "search": {"random": {"trials": trials}, "parameters": {"algorithm.ppo.learningRate": rate}},
        "parallelism": 3,
        **spec,
    }
    return {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLExperiment", "metadata": {"name": "a"}, "spec": whole}


class Killed(Exception):
    """The controller ends here, as by kill -9."""


class World:
    """What outlives a controller: the journal, and the runs, each with the raw frames that it has played. A run plays on by
    itself to where it was last sent. ``kill_at``: the step, counted over all controllers, at which one is killed; a line may be
    half written."""

    def __init__(
        self, experiment: dict[str, Any], curve: Curve, kill_at: int = -1, fails: frozenset[int] = frozenset()
    ) -> None:
        self.experiment, self.curve, self.kill_at, self.fails = experiment, curve, kill_at, fails
        self.text = b""
        self.steps = 0
        self.sent: dict[tuple[int, int], int] = {}
        self.played = 0
        self.most_at_once = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed

    def write(self, entry: Entry) -> None:
        text = line(entry)
        self.text += text[: len(text) // 2]
        try:
            self.step()
        except Killed:
            raise
        self.text = whole_lines(self.text) + text
        self.step()

    def send(self, run: Run, frames: int) -> None:
        """The effect: repeating it changes nothing."""
        self.step()
        before = self.sent.get(run.key, 0)
        assert frames >= before, "a run is not sent back"
        self.played += frames - before
        self.sent[run.key] = frames
        self.step()

    def controller(self) -> ExperimentState:
        """One life of a controller."""
        self.text = whole_lines(self.text)
        state = replayed(self.text.splitlines(keepends=True))
        if state.experiment is None:
            self._add(state, {"kind": "Settings", "experiment": self.experiment})
        while True:
            while (entry := decide(state)) is not None:
                self._add(state, entry)
            if state.end is not None:
                return state
            assert state.active, "it waits for nothing"
            self.most_at_once = max(self.most_at_once, len(state.active))
            for run in state.active:
                self.send(run, state.known.rungs[run.rung])
            run = state.active[len(state.active) // 2]
            about = {"trial": run.trial, "seed": run.seed}
            if run.trial in self.fails:
                self._add(state, {"kind": "Fail", **about, "why": "it was made to"})
                continue
            frames = self.sent[run.key]
            score = {"mean": self.curve(run.trial, run.seed, frames), "standardError": 1.0, "episodes": 100}
            self._add(state, {"kind": "Score", **about, **score, "rawFrames": frames, "solved": False})

    def _add(self, state: ExperimentState, entry: Entry) -> None:
        self.write(entry)
        state.apply(entry)

    def entries(self) -> list[Entry]:
        return [json.loads(text) for text in self.text.splitlines()]


def lived(world: World) -> ExperimentState:
    """The experiment to its end, through the one kill that its world has."""
    try:
        return world.controller()
    except Killed:
        return world.controller()


def spread(trial: int, seed: int, frames: int) -> float:
    return (trial * 37 + seed) % 101 + frames / 1000


GRID = {f"algorithm.ppo.{name}": {"values": [0.5, 0.9]} for name in ("gamma", "entropyCost")}
CASES = {
    "a grid in another order than that of its names": (
        document(4, search={"grid": {}, "parameters": GRID}),
        frozenset[int](),
    ),
    "halving": (document(7, prune=HALVING, seeds=2), frozenset[int]()),
    "median": (document(5, prune=MEDIAN), frozenset[int]()),
    "failing": (document(5, prune=HALVING, maxFailedTrials=2), frozenset({1, 3})),
    "too many fail": (document(5, maxFailedTrials=1), frozenset({0, 1, 2})),
    "seeds": (document(2, seeds=2), frozenset[int]()),
}


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
        assert world.text == calm.text, at
        assert world.sent == calm.sent, at
        assert world.played == calm.played, at
    assert calm.most_at_once <= 3


def test_what_the_cases_lead_to() -> None:
    ends = {case: lived(World(experiment, spread, fails=fails)) for case, (experiment, fails) in CASES.items()}
    reasons = {case: state.end["reason"] for case, state in ends.items() if state.end is not None}
    assert reasons.pop("too many fail") == "TooManyFailedTrials"
    assert set(reasons.values()) == {"Completed"}
    halving = ends["halving"]
    assert halving.end is not None
    # 37 * trial % 101 is largest for trial 5; it alone plays all, and then with the second seed.
    assert halving.end["best"]["trial"] == 5
    assert halving.end["best"]["seeds"] == [1, 2]
    assert halving.end["best"]["mean"] == pytest.approx(5 * 37 % 101 + 1.5 + 9)
    assert halving.end["best"]["standardError"] == pytest.approx(0.5)
    assert {run.state for run in halving.runs.values()} == {RunState.DONE, RunState.PRUNED}
    assert {key for key, run in ends["failing"].runs.items() if run.state is RunState.FAILED} == {(1, 1), (3, 1)}
    assert len(ends["seeds"].runs) == 4


def test_the_median_ends_what_is_below_it_and_needs_enough_others() -> None:
    world = World(document(6, prune=MEDIAN, parallelism=1), lambda trial, seed, frames: -trial)
    state = lived(world)
    pruned = [entry for entry in world.entries() if entry["kind"] == "Prune"]
    assert [entry["trial"] for entry in pruned] == [3, 4, 5]
    assert pruned[0] | {"score": -3, "judged": 4, "bound": -1, "rung": 0} == pruned[0]
    assert [run.trial for run in state.runs.values() if run.state is RunState.DONE] == [0, 1, 2]


def learning(seed: int) -> tuple[Curve, list[float]]:
    """Curves that rise to different heights at different speeds and may cross, judged with noise: the error of 100 games is a
    tenth of the spread between trials. Beside it the true heights at the end."""
    draws = random.Random(seed)
    heights = [draws.gauss(0, 10) for _ in range(27)]
    speeds = [draws.uniform(1500, 4000) for _ in range(27)]

    def true(trial: int, frames: int) -> float:
        return (heights[trial] + 30) * (1 - math.exp(-frames / speeds[trial]))

    def curve(trial: int, of_seed: int, frames: int) -> float:
        return true(trial, frames) + random.Random(f"{seed}/{trial}/{frames}").gauss(0, 1)

    return curve, [true(trial, 9000) for trial in range(27)]


def test_halving_costs_little_and_finds_one_of_the_best_three() -> None:
    """Acceptance row 8: at most 40 % of the frames, the full search's winner among its best three in four seeds of five."""
    found, shares = [], []
    for seed in range(5):
        curve, true = learning(seed)
        world = World(document(27, prune=HALVING, parallelism=4), curve)
        state = lived(world)
        assert state.end is not None
        winner = max(range(27), key=lambda trial: true[trial])
        found.append(winner in [ranked.trial for ranked in state.ranking()[:3]])
        shares.append(world.played / (27 * 9000))
    assert max(shares) <= 0.4, shares
    assert sum(found) >= 4, found


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
        ([lines[0], *lines[1:4], b'{"kind":"Copy"}\n'], "unknown kind 'Copy'"),
        ([b"[]\n"], "line 1"),
    ):
        with pytest.raises(JournalProblem, match=said):
            replayed(broken)


def test_what_may_change_of_an_experiment_that_has_begun() -> None:
    state = ExperimentState()
    first = document(3, maxFailedTrials=0)
    state.apply({"kind": "Settings", "experiment": first})
    state.apply(
        {"kind": "Settings", "experiment": document(3, budget={"rawFrames": 9000, "seconds": 5}, parallelism=1)}
    )
    assert state.known.spec.parallelism == 1
    for other in (document(4), document(3, seeds=2), document(3, prune=HALVING), document(3, budget={"rawFrames": 1})):
        with pytest.raises(Mismatch, match=r"only parallelism, maxFailedTrials, budget\.seconds"):
            state.apply({"kind": "Settings", "experiment": other})


def test_time_that_is_up_ends_it_with_the_best_so_far() -> None:
    state = ExperimentState()
    state.apply({"kind": "Settings", "experiment": document(9, prune=HALVING)})
    while (entry := decide(state)) is not None:
        state.apply(entry)
    score = {"standardError": 1.0, "episodes": 100, "rawFrames": 1000, "solved": False}
    state.apply({"kind": "Score", "trial": 1, "seed": 1, "mean": 5.0, **score})
    state.apply({"kind": "TimeUp", "seconds": 12.5})
    end = decide(state)
    assert end is not None
    state.apply(end)
    assert (end["reason"], end["best"]["trial"], state.seconds) == ("TimeUp", 1, 12.5)
    assert state.active == []


def test_a_solved_run_needs_no_more_frames() -> None:
    state = ExperimentState()
    state.apply({"kind": "Settings", "experiment": document(1, prune=HALVING)})
    state.apply(decide(state) or {})
    score = {"standardError": 1.0, "episodes": 100, "rawFrames": 700}
    state.apply({"kind": "Score", "trial": 0, "seed": 1, "mean": 5.0, "solved": True, **score})
    assert (decide(state) or {})["kind"] == "End"
    with pytest.raises(Mismatch, match="finite"):
        ExperimentState.apply(
            _running(), {"kind": "Score", "trial": 0, "seed": 1, "mean": math.nan, "solved": True, **score}
        )


def _running() -> ExperimentState:
    state = ExperimentState()
    state.apply({"kind": "Settings", "experiment": document(1)})
    state.apply(decide(state) or {})
    return state


def test_a_thousand_trials_fit_into_a_status() -> None:
    """Acceptance row 9, as far as the core goes: at most 100 kB, whatever the settings' length, and a whole journal."""
    experiment = document(1000, prune={"halving": {"firstRawFrames": 3000}}, parallelism=50)
    parameters = experiment["spec"]["search"]["parameters"]
    parameters["algorithm.ppo.network"] = {"values": ["a" * 200 + ":f"]}
    world = World(experiment, spread)
    state = lived(world)
    assert len(json.dumps(summary(state), indent=2)) <= 100_000
    starts = [(entry["trial"], entry["seed"]) for entry in world.entries() if entry["kind"] == "Start"]
    assert sorted(starts) == [(trial, 1) for trial in range(1000)]

"""Simulated worlds for the core of experiments: a journal, runs, a controller that may be killed at any step; learning curves."""

import json
import math
import random
from collections.abc import Callable
from typing import Any

from rljob_operator.experiments.decide import decide
from rljob_operator.experiments.journal import Entry, line, replayed, whole_lines
from rljob_operator.experiments.state import ExperimentState, Run

Curve = Callable[[int, int, int], float]
"""(trial, seed, raw frames) -> mean return."""
HALVING = {"halving": {"firstRawFrames": 1000, "factor": 3}}
MEDIAN = {"median": {"afterRawFrames": 2000, "minTrials": 3}}


def document(trials: int, **spec: Any) -> dict[str, Any]:
    rate = {"logUniform": {"min": 1e-4, "max": 1e-2}}
    whole = {
        "template": {"spec": {"environment": {"id": "CartPole-v1"}}},
        "budget": {"rawFrames": 9000},
        "search": {"random": {"trials": trials}, "parameters": {"algorithm.learningRate": rate}},
        "parallelism": 3,
        **spec,
    }
    return {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLExperiment", "metadata": {"name": "a"}, "spec": whole}


def population(size: int = 4, parallelism: int = 4, **of_it: Any) -> dict[str, Any]:
    """An experiment with a population, whose members are judged after each 2,000 of 9,000 raw frames."""
    rate = {"algorithm.learningRate": {"logUniform": {"min": 1e-4, "max": 1e-2}}}
    of = {"size": size, "seed": 3, "readyRawFrames": 2000, "parameters": rate, **of_it}
    return document(0, search=None, population=of, parallelism=parallelism)


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
        if (settings := state.taking(self.experiment)) is not None:
            self._add(state, settings)
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
            if state.known.spec.population is not None:
                score["checkpoint"] = {"from": f"file:///{run.trial}", "digest": f"sha256:{frames:064d}"}
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


GRID = {f"algorithm.{name}": {"values": [0.5, 0.9]} for name in ("gamma", "entropyCost")}
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
    "a population": (population(), frozenset({1})),
    "a population that takes turns": (population(parallelism=2, reference=True), frozenset[int]()),
}


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

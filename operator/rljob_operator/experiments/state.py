"""What an experiment is after the lines of its journal: which runs there are, and how each was judged."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from rljob.api.experiment_check import parse_experiment
from rljob.api.experiment_trials import Experiment
from rljob.api.live import as_begun
from rljob.api.status_document import number
from rljob.sources import without_places

DECISIONS = ("Start", "Promote", "Prune", "Copy", "Keep", "End")
"""Kinds of lines that are decided; the others are observed: Settings, Score, Refused (a fork), Fail, TimeUp, Verdict.
Settings after the End begin the experiment anew where it has ended, with the runs and scores that it has."""

MAY_CHANGE = (
    "parallelism, maxFailedTrials and budget.seconds may change, and seeds, trials and list grow; of the template what changes "
    "nothing that is learned (tracking, checkpoint.retain, labels)"
)

TOO_MANY_FAILED, ALL_FAILED = "TooManyFailedTrials", "AllTrialsFailed"
"""Reasons of an End with which an experiment has failed. It has failed, too, where no trial has a score when its time is up."""


class Mismatch(Exception):
    """A line that can't follow on those before it."""


class RunState(StrEnum):
    """Where a run is."""

    RUNNING = "Running"
    """It plays, or is judged."""
    WAITING = "Waiting"
    """It was judged at a rung, and is not promoted yet."""
    DONE = "Done"
    """It has played its budget, or reached its own goal."""
    PRUNED = "Pruned"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Score:
    """How a run was judged: the mean return of ``episodes`` whole games at ``raw_frames``; with which settings, and of a member
    of a population of which checkpoint (from, digest)."""

    mean: float
    standard_error: float
    episodes: int
    raw_frames: int
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Run:
    """One run: a trial with one seed (1, 2, ...). ``rung``: the one that it plays to, or waits at; ``why``: how it failed. Of a
    member of a population: its settings now, its newest fork unless that was refused, and the lines by which it has copied."""

    trial: int
    seed: int
    state: RunState = RunState.RUNNING
    rung: int = 0
    scores: list[Score] = field(default_factory=list)
    why: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    fork: Mapping[str, Any] | None = None
    line: list[dict[str, Any]] = field(default_factory=list)

    @property
    def overrides(self) -> dict[str, Any]:
        """What it sets in the template now."""
        return {**self.settings, **({"fork": dict(self.fork)} if self.fork is not None else {})}

    @property
    def forks(self) -> bool:
        """Whether it has not been judged since it was told to copy another one."""
        return self.fork is not None and len(self.scores) == self.line[-1]["judgedRung"] + 1

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from others."""
        return self.trial, self.seed

    @property
    def raw_frames(self) -> int:
        """What it had played when it was last judged."""
        return self.scores[-1].raw_frames if self.scores else 0

    @property
    def best(self) -> Score:
        """Its highest score, of equal ones the last. The weights that had it are kept. Raises ValueError before it was judged."""
        return max(reversed(self.scores), key=lambda score: score.mean)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A trial among others: its runs that count, the mean of their best scores and its standard error. With several seeds the
    error is that of the mean over seeds, with one that of its games."""

    trial: int
    runs: tuple[Run, ...]
    mean: float
    standard_error: float


class ExperimentState:
    """Everything that is known of an experiment. `apply` takes the next line; all else asks."""

    def __init__(self) -> None:
        self.experiment: Experiment | None = None
        self._checked: Experiment | None = None
        """What `taking` has found valid: a thousand trials take more than a second."""
        self.runs: dict[tuple[int, int], Run] = {}
        self.time_up = False
        self.end: dict[str, Any] | None = None
        self.verdicts: dict[tuple[int, int], Score] = {}
        self.seconds = 0.0
        """How long its controllers have been at work until the last observation."""
        self.running = 0
        self.failed = 0
        self.waiting: dict[int, list[Run]] = {}
        """Rung -> first runs that were judged there, in their order, whatever became of them."""

    @property
    def known(self) -> Experiment:
        """The experiment. Raises Mismatch where no line has told it."""
        if self.experiment is None:
            raise Mismatch("a journal begins with Settings")
        return self.experiment

    def apply(self, entry: dict[str, Any]) -> None:
        """Take a line. Raises Mismatch, KeyError or ValueError where it can't follow."""
        kind = entry["kind"]
        self.seconds = max(self.seconds, float(entry.get("seconds", 0.0)))
        if kind == "Settings":
            checked = self._checked
            if checked is None or checked.document != entry["experiment"]:
                checked = parse_experiment(entry["experiment"])
            self._require_same(checked)
            if self.experiment is not None:
                checked.suggested.update(self.experiment.suggested)
            self.experiment, self._checked = checked, None
            self.end, self.time_up = None, False
            self.verdicts.clear()
        elif kind == "Start":
            self._add(Run(entry["trial"], entry["seed"], settings=entry["set"]))
            if "by" in entry:
                self.known.suggested[entry["trial"]] = entry["set"]
        elif kind in ("Promote", "Copy", "Keep"):
            run = self._run(entry, RunState.WAITING)
            run.rung, run.state = entry["rung"], RunState.RUNNING
            self.running += 1
            if kind == "Copy":
                run.settings, run.fork = entry["set"], entry["fork"]
                run.line.append(entry)
        elif kind == "Refused":
            run = self.runs[entry["trial"], entry["seed"]]  # which goes on from its own weights
            own = {"donor": run.trial, "donorRung": run.line[-1]["judgedRung"]}
            run.fork, run.line[-1] = None, {**run.line[-1], **own}
        elif kind == "Prune":
            self._run(entry, RunState.WAITING).state = RunState.PRUNED
        elif kind == "Score":
            run = self._run(entry, RunState.RUNNING)
            score = replace(_score(entry), checkpoint=entry.get("checkpoint", {}), settings=run.settings)
            self._judged(run, score, solved=entry["solved"])
        elif kind == "Fail":
            run = self._run(entry, RunState.RUNNING)
            run.state, run.why = RunState.FAILED, entry["why"]
            self.running -= 1
            self.failed += 1
        elif kind == "TimeUp":
            self.time_up = True
        elif kind == "End":
            self.end = entry
            # Where nothing was chosen by them, scores are what fresh games would be.
            if self.known.trials == 1 and all(len(run.scores) == 1 for run in self.best()):
                self.verdicts = {run.key: run.best for run in self.best()}
        elif kind == "Verdict":
            self.verdicts[entry["trial"], entry["seed"]] = _score(entry)
        else:
            raise Mismatch(f"unknown kind {kind!r}; a newer release may have written it")

    def taking(self, document: Mapping[str, Any]) -> dict[str, Any] | None:
        """The line that takes the settings of a manifest over; None where they are in force. Raises ManifestError, and Mismatch
        where they are those of another experiment."""
        experiment = parse_experiment(document)
        self._require_same(experiment)
        self._checked = experiment
        if self.experiment is not None and self.experiment.document == experiment.document:
            return None
        return {"kind": "Settings", "experiment": dict(experiment.document)}

    def settings(self, trial: int) -> Mapping[str, Any]:
        """The settings of a trial that was started; of a member of a population those of its best score."""
        run = self.runs[trial, 1]
        of_it = run.best.settings if run.scores else run.settings
        return of_it if self.known.spec.population is not None else self.known.settings(trial)

    @property
    def has_failed(self) -> bool:
        """Whether it has ended without a best trial, or with too many that failed."""
        return self.end is not None and (self.end["best"] is None or self.end["reason"] == TOO_MANY_FAILED)

    def best(self) -> Iterator[Run]:
        """The runs of the best trial, once it has ended; they are judged anew where it is the best of several."""
        found = (self.end["best"] if self.end is not None else None) or {"seeds": ()}
        yield from (self.runs[found["trial"], seed] for seed in found["seeds"])

    def _require_same(self, experiment: Experiment) -> None:
        """Other settings are taken over where they change nothing of what was decided by those before."""
        if self.experiment is not None and not _goes_on(experiment, self.experiment):
            raise Mismatch(f"of an experiment that has begun only {MAY_CHANGE}")

    def _add(self, run: Run) -> None:
        if run.key in self.runs:
            raise Mismatch("this run was started before")
        if run.seed > 1:
            run.rung = len(self.known.rungs) - 1
        self.runs[run.key] = run
        self.running += 1

    def _judged(self, run: Run, score: Score, *, solved: bool) -> None:
        run.scores += [score] * (run.rung + 1 - len(run.scores))  # of a population one may have played beyond a rung
        self.running -= 1
        run.state = RunState.DONE if solved or run.rung == len(self.known.rungs) - 1 else RunState.WAITING
        if run.seed == 1:
            self.waiting.setdefault(run.rung, []).append(run)

    def _run(self, entry: dict[str, Any], state: RunState) -> Run:
        run = self.runs[entry["trial"], entry["seed"]]
        if run.state is not state or self.end is not None:
            raise Mismatch(f"the run is {run.state}, not {state}" if self.end is None else "the experiment has ended")
        return run

    @property
    def active(self) -> list[Run]:
        """Runs that should be there now; none once it has ended."""
        return [] if self.end is not None else [run for run in self.runs.values() if run.state is RunState.RUNNING]

    def ranking(self) -> list[Ranked]:
        """Trials that were judged, the best first, by the best weights that each has had, which are kept. Of equal ones those
        come first that have played furthest, then those with more seeds done, then the one with fewer raw frames."""
        found = [ranked for trial in dict.fromkeys(trial for trial, _ in self.runs) for ranked in self._ranked(trial)]
        return sorted(found, key=_place)

    def _ranked(self, trial: int) -> Iterator[Ranked]:
        seeds = range(1, self.known.spec.seeds + 1)
        runs = [run for seed in seeds if (run := self.runs.get((trial, seed))) is not None]
        counted = [run for run in runs if run.state is RunState.DONE] or [run for run in runs if run.scores]
        if counted:
            yield Ranked(trial, tuple(counted), *over_seeds([run.best for run in counted]))

    def judged_at(self, rung: int) -> list[Run]:
        """First runs that were judged at ``rung``, the best there first, whatever became of them."""
        return sorted(self.waiting.get(rung, ()), key=lambda run: (-run.scores[rung].mean, run.trial))


def over_seeds(scores: Sequence[Score]) -> tuple[float, float]:
    """Mean and standard error of the runs of a trial: of several seeds the error is that of the mean over seeds, of one that of
    its games."""
    means = [score.mean for score in scores]
    error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else scores[0].standard_error
    return statistics.fmean(means), error


def _goes_on(experiment: Experiment, before: Experiment) -> bool:
    """Whether nothing is lost of what was decided before: every run that there may be is one of the new settings, too."""
    grown = experiment.trials >= before.trials and experiment.spec.seeds >= before.spec.seeds
    return grown and _lasting(experiment, before.trials) == _lasting(before, before.trials)


def _lasting(experiment: Experiment, trials: int) -> tuple[Any, ...]:
    """What of an experiment with so many trials stays as it began."""
    spec, template, search = (
        experiment.spec,
        as_begun(experiment.document["spec"]["template"]["spec"]),
        experiment.spec.search,
    )
    if search is not None:
        drawn = {"random": search.random, "tpe": search.tpe}
        same = {name: each and each.model_copy(update={"trials": trials}) for name, each in drawn.items()}
        search = search.model_copy(update={**same, "listed": search.listed and search.listed[:trials]})
    budget = spec.budget.model_copy(update={"seconds": None})
    fixed = {"parallelism": 1, "max_failed_trials": 0, "suspend": False, "seeds": 1}
    lasting = spec.model_copy(update={**fixed, "budget": budget, "search": search})
    return experiment.name, without_places(template), without_places(lasting.model_dump(exclude={"template"}))


def _place(ranked: Ranked) -> tuple[Any, ...]:
    done = [run for run in ranked.runs if run.state is RunState.DONE]
    furthest = (not done, -len(done), -max(run.rung for run in ranked.runs) if not done else 0)
    return (-ranked.mean, *furthest, min(run.raw_frames for run in ranked.runs), ranked.trial)


def _score(entry: dict[str, Any]) -> Score:
    return Score(
        number(entry["mean"]),
        number(entry["standardError"]),
        entry["episodes"],
        entry["rawFrames"],
    )

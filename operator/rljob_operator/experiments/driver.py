"""One experiment led, wherever its runs are: what became of them is noted, the next decision made, and what is wanted of each run
follows from the journal and from how the run is.

A place sees, judges and carries out; nothing is decided there. It stores the journal after each turn, before it acts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from rljob.api import ManifestError, parse_job
from rljob.api.conditions import ConditionType, Reason
from rljob.api.experiment_trials import Experiment
from rljob.api.live import as_begun
from rljob.api.overrides import apply_overrides
from rljob.api.status import ForkStatus, RLJobStatus
from rljob.api.status_document import number
from rljob.api.status_model import rfc3339
from rljob.checkpoints.names import SCORED
from rljob.sources import without_places

from rljob_operator.core.desired import CHECKPOINT_ANNOTATION
from rljob_operator.experiments.decide import decide
from rljob_operator.experiments.journal import Entry, Journal
from rljob_operator.experiments.state import Run, RunState

_SEEDS_APART = 1_000_000
"""Between the seeds of the games of two rungs: all trials of a rung play the same games, and no game is played at two rungs."""
RUNG_ANNOTATION = "rljob.dev/rung"
"""On a member of a population: the rung for which it was last asked for a checkpoint."""
_GOALS = (Reason.TARGET_RETURN_REACHED, Reason.METRIC_REACHED)
"""With these a run has reached its own goal; what earlyStopping has ended has not."""


_FRAMES: Final = "successPolicy.rawFrames"
_FOLLOWS: Final = ("actors.replicas", "fork", _FRAMES)
"""What may differ in the stored job of a run: an autoscaler writes the one, and the others follow from the journal."""


@dataclass(frozen=True, slots=True)
class Sight:
    """How a run is.

    Attributes:
        rests: nothing of it runs.
        job: as it is stored; None where there is none, or only that of a rung before.
        status: as its controller tells it, if it has told what became of ``job``.
        why: it has failed, for a reason that its status does not tell.
    """

    rests: bool
    job: Mapping[str, Any] | None = None
    status: RLJobStatus = field(default_factory=RLJobStatus)
    why: str = ""


class RunsPlace(Protocol):
    """Where the runs of an experiment are: folders of a machine, or RLJobs of a cluster."""

    def frames(self, run: Run) -> int:
        """The raw frames after which its job ends: those of its rung, or, where it is suspended there, its budget."""

    def sight(self, run: Run) -> Sight:
        """How a run is now."""

    def judged(self, run: Run, rung: int) -> Mapping[str, Any] | None:
        """How its newest weights (its best, with an evaluator; at the end those that were kept) are judged by the games of
        ``rung``, as `scored` tells it; None while they are."""


@dataclass(slots=True)
class Driver:
    """Leads the experiment of ``journal``, whose runs are at ``place``.

    ``unjudged``: runs of the best trial, and why they can't be judged anew.
    """

    journal: Journal
    place: RunsPlace
    unjudged: dict[tuple[int, int], str] = field(default_factory=dict)

    def turn(self) -> None:
        """Take in what has become of the runs, and decide what follows: lines of the journal, which are to be stored before
        anything is done about them."""
        state, limit = self.journal.state, self.journal.state.known.spec.budget.seconds
        self._decide()
        if limit is not None and self.journal.seconds >= limit and not state.time_up and state.end is None:
            self._note({"kind": "TimeUp"})
        for run, rung in self.due():
            look = self._verdict if rung == len(state.known.rungs) else self._look
            if (entry := look(run, rung)) is not None:
                self._note({**entry, "trial": run.trial, "seed": run.seed})

    def _note(self, entry: Entry) -> None:
        """Add what was observed, and decide what follows."""
        self.journal.add({**entry, "seconds": round(self.journal.seconds, 1)})
        self._decide()

    def _decide(self) -> None:
        while (entry := decide(self.journal.state)) is not None:
            self.journal.add(entry)

    def fail(self, run: Run, why: str) -> None:
        """Note that a run can't be made, or can't go on; what follows is decided in the next turn."""
        self.journal.add({"kind": "Fail", "why": why[:500], "trial": run.trial, "seed": run.seed})

    def due(self) -> Iterator[tuple[Run, int]]:
        """Runs that are judged at a rung, or are yet to play to it; once it has ended, those of the best trial that are to be
        judged anew, on games that it was not chosen by."""
        state = self.journal.state
        yield from ((run, run.rung) for run in state.active)
        fresh = (run for run in state.best() if run.key not in {**state.verdicts, **self.unjudged})
        yield from ((run, len(state.known.rungs)) for run in fresh)

    def plays(self, run: Run) -> bool:
        """Whether a run is to play on."""
        sight = self.sight(run) if self._active(run) else None
        through = self.journal.state.known.plays_through
        return sight is not None and not sight.why and not (self._reached(run, sight) and (sight.rests or not through))

    def wanted(self, run: Run, stored: Mapping[str, Any], now: float) -> dict[str, Any]:
        """The ``stored`` job of a run that plays as it is to be: a member of a population follows its settings and its fork, and
        is asked for the checkpoint by which it is judged while it plays on. Doing it again changes nothing.

        Args:
            now: Unix seconds, which name a new request.
        """
        document = self._brought(stored, run)
        about = document["metadata"]
        annotations = about.get("annotations") or {}
        if annotations.get(RUNG_ANNOTATION) == str(run.rung) or not self._reached(run, self.sight(run)):
            return document
        asked = {**annotations, RUNG_ANNOTATION: str(run.rung), CHECKPOINT_ANNOTATION: rfc3339(now)}
        return {**document, "metadata": {**about, "annotations": asked}}

    @property
    def rests(self) -> bool:
        """Whether nothing of it runs."""
        return all(self.sight(run).rests for run in self.journal.state.runs.values())

    @property
    def judged(self) -> bool:
        """Whether it has ended, and the best trial was judged anew, or can't be."""
        return self.journal.state.end is not None and not any(self.due())

    def _active(self, run: Run) -> bool:
        """Whether a run has frames to play or games to be judged in."""
        return self.journal.state.end is None and run.state is RunState.RUNNING

    def _reached(self, run: Run, sight: Sight) -> bool:
        """Whether a run has played to its rung, or has ended before."""
        return sight.status.finished or sight.status.progress.raw_frames >= self.journal.state.known.rungs[run.rung]

    def sight(self, run: Run) -> Sight:
        """How a run is now."""
        sight = self.place.sight(run)
        failed = sight.status.condition(ConditionType.FAILED)
        told = f"{failed.reason}: {failed.message}" if failed is not None and failed.status == "True" else ""
        return replace(sight, why=sight.why or told)

    def _look(self, run: Run, rung: int) -> Entry | None:
        """What has become of a run that should play to its rung: its score or its failure; None while it plays or is judged."""
        if not self._active(run):
            return None
        sight = self.sight(run)
        if sight.why:
            return {"kind": "Fail", "why": sight.why[:500]}
        if run.fork is not None and (why := refusal(run, sight.status)):
            return {"kind": "Refused", "id": run.fork["id"], "why": why}
        if not (job := sight.job) or not self._reached(run, sight):
            return None
        can_be = sight.rests or is_saved(run, job, sight.status)
        if (found := self.place.judged(run, rung) if can_be else None) is None:
            return None
        if self._is_another(run, job):
            name = self.journal.state.known.run_name(*run.key)
            return {"kind": "Fail", "why": f"RLJob {name} was changed by hand, so that it is another trial"}
        complete = sight.status.condition(ConditionType.COMPLETE)
        solved = {"solved": complete is not None and complete.reason in _GOALS}
        return {"kind": "Fail", **found} if "why" in found else {"kind": "Score", **solved, **found}

    def _verdict(self, run: Run, rung: int) -> Entry | None:
        """How a run of the best trial is judged anew; None while it is, and where it can't be."""
        found = self.place.judged(run, rung) if self.sight(run).rests else None
        if found is not None and "why" in found:
            self.unjudged[run.key] = found["why"]
            return None
        return None if found is None else {"kind": "Verdict", **found}

    def _brought(self, job: Mapping[str, Any], run: Run) -> dict[str, Any]:
        """The stored ``job`` of a run with what follows from the journal: how long it plays, and of a member of a population its
        settings and its fork."""
        own = {} if self.journal.state.known.spec.population is None else run.overrides
        return apply_overrides(job, [*sorted(own.items()), (_FRAMES, self.place.frames(run))])

    def _is_another(self, run: Run, job: Mapping[str, Any]) -> bool:
        """Whether the stored ``job`` of a run is another trial by now."""
        made = self.journal.state.known.manifest(*run.key, self.place.frames(run), run.overrides or None)
        try:
            now, begun = (parse_job(each).spec.model_dump(by_alias=True) for each in (self._brought(job, run), made))
        except ManifestError:
            return True
        return bool(without_places(as_begun(now, *_FOLLOWS)) != without_places(as_begun(begun, *_FOLLOWS)))


def is_saved(run: Run, job: Mapping[str, Any], status: RLJobStatus) -> bool:
    """Whether a run has written the checkpoint that its stored ``job`` asks for at its rung, with the weights of its newest fork,
    if any."""
    answer, annotations = status.controller.checkpoint_request, job["metadata"].get("annotations") or {}
    if run.forks and _answer_to(run, status) is None:
        return False
    answered = answer is not None and answer.done and answer.requested_at == annotations.get(CHECKPOINT_ANNOTATION)
    return answered and annotations.get(RUNG_ANNOTATION) == str(run.rung)


def refusal(run: Run, status: RLJobStatus) -> str:
    """Why a run has not taken, and will not take, the weights of its newest fork; empty where it has, or may."""
    if not run.forks:
        return ""
    if (fork := _answer_to(run, status)) is not None:
        return (fork.message or "its learner gave no reason") if fork.state == "Refused" else ""
    return "the run had ended before" if status.finished else ""


def _answer_to(run: Run, status: RLJobStatus) -> ForkStatus | None:
    """What the learner says of the run's newest fork, where it is done or refused; None before."""
    said, asked = status.fork, run.fork or {}
    return said if said is not None and said.id == asked.get("id") and said.state != "Waiting" else None


def judging(experiment: Experiment, run: Run, rung: int) -> list[str]:
    """The options of `rljob eval` by which a run is judged at a rung, and its weights are kept where they are the best that it
    has had. The number of rungs stands for fresh games, in which the kept ones are judged at the end."""
    least = str(run.best.mean) if run.scores else "-inf"
    keep = [] if rung == len(experiment.rungs) else ["--keep-from", least]
    games, population = experiment.spec.template.spec.evaluator.episodes, experiment.spec.population
    if population is not None and keep:
        games, keep = population.exploit.games, [*keep, "--scored", SCORED[rung % 2]]
    return ["--episodes", str(games), "--seed", str((rung + 1) * _SEEDS_APART), *keep]


def scored(figures: Mapping[str, Any], raw_frames: int, said: str) -> dict[str, Any]:
    """What `rljob eval --json` has printed of a run at ``raw_frames`` as a part of an entry, or ``why`` it can't be judged.
    ``said``: what it has said instead of figures."""
    try:
        return {
            "mean": number(figures["mean"]),
            "standardError": number(figures.get("standard_error") or 0.0),  # of one game there is none
            "episodes": figures["episodes"],
            "rawFrames": raw_frames,
            **({"checkpoint": kept, "rawFrames": kept["rawFrames"]} if (kept := figures.get("checkpoint")) else {}),
        }
    except KeyError:
        return {"why": f"it can't be judged: {said}"[:500]}
    except ValueError as problem:
        return {"why": f"its mean return or its standard error can't be used: {problem}"}

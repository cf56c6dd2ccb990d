"""One experiment led, wherever its runs are: what became of them is noted, the next decision made, and what is wanted of each run
follows from the journal and from how the run is.

A place sees, judges and carries out; nothing is decided there. It stores the journal after each turn, before it acts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rljob.api import ManifestError
from rljob.api.conditions import Reason
from rljob.api.experiment_trials import Experiment
from rljob.api.overrides import apply_overrides
from rljob.api.status import ForkStatus, RLJobStatus
from rljob.api.status_document import number
from rljob.api.status_model import rfc3339
from rljob.checkpoints.names import SCORED

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


@dataclass(frozen=True, slots=True)
class Sight:
    """How a run is.

    Attributes:
        rests: nothing of it runs.
        saved: it can be judged: it rests, or it has written the checkpoint that it was asked for.
        reached: it has played to its rung, or has ended before.
        reason: that of its Complete; empty where it is not.
        refused: why its newest fork was refused; empty where it was not.
        why: it has failed, or is another trial by now; empty where neither is so.
    """

    rests: bool
    reached: bool = False
    saved: bool = False
    refused: str = ""
    reason: str = ""
    why: str = ""


class RunsPlace(Protocol):
    """Where the runs of an experiment are: folders of a machine, or RLJobs of a cluster."""

    def sight(self, run: Run) -> Sight:
        """How a run is now. Raises ManifestError where its settings make no job."""

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

    def turn(self, seconds: Callable[[], float]) -> list[Entry]:
        """Take in what has become of the runs, and decide what follows; the new lines, which are to be stored before anything is
        done about them. ``seconds``: how long the experiment has been at work."""
        state, entries = self.journal.state, list[Entry]()

        def add(entry: Entry | None) -> None:
            while entry is not None:
                self.journal.add(entry)
                entries.append(entry)
                entry = decide(state)

        add(decide(state))
        limit = state.known.spec.budget.seconds
        if limit is not None and seconds() >= limit and not state.time_up and state.end is None:
            add({"kind": "TimeUp", "seconds": seconds()})
        for look, runs in ((self._look, state.active), (self._verdict, state.best())):
            for run in runs:
                if (entry := look(run)) is not None:
                    add({**entry, "seconds": seconds()})
        return entries

    def plays(self, run: Run) -> bool:
        """Whether a run is to play on."""
        sight = self.sight(run) if self._active(run) else None
        through = self.journal.state.known.plays_through
        return sight is not None and not sight.why and not (sight.reached and (sight.rests or not through))

    def wanted(self, run: Run, stored: Mapping[str, Any], now: float) -> dict[str, Any]:
        """The ``stored`` job of a run that plays as it is to be: a member of a population follows its settings and its fork, and
        is asked for the checkpoint by which it is judged while it plays on. Doing it again changes nothing.

        Args:
            now: Unix seconds, which name a new request.
        """
        document, sight = brought(stored, self.journal.state.known, run), self.sight(run)
        about = document["metadata"]
        annotations = about.get("annotations") or {}
        if not sight.reached or sight.saved or annotations.get(RUNG_ANNOTATION) == str(run.rung):
            return document
        asked = {**annotations, RUNG_ANNOTATION: str(run.rung), CHECKPOINT_ANNOTATION: rfc3339(now)}
        return {**document, "metadata": {**about, "annotations": asked}}

    @property
    def rests(self) -> bool:
        """Whether nothing of it runs."""
        return all(self.sight(run).rests for run in self.journal.state.runs.values())

    @property
    def judged(self) -> bool:
        """Whether the best trial was judged anew, or can't be."""
        return all(run.key in {**self.journal.state.verdicts, **self.unjudged} for run in self.journal.state.best())

    def _active(self, run: Run) -> bool:
        """Whether a run has frames to play or games to be judged in."""
        return self.journal.state.end is None and run.state is RunState.RUNNING

    def sight(self, run: Run) -> Sight:
        """How a run is now."""
        try:
            return self.place.sight(run)
        except ManifestError as error:  # an older journal may have suggestions that are not allowed together
            return Sight(rests=True, why=str(error))

    def _look(self, run: Run) -> Entry | None:
        """What has become of a run that should play to its rung: its score or its failure; None while it plays or is judged."""
        if not self._active(run):
            return None
        sight = self.sight(run)
        if sight.refused and run.fork is not None:
            return {"kind": "Refused", "trial": run.trial, "seed": run.seed, "id": run.fork["id"], "why": sight.refused}
        can_be = sight.reached and (sight.rests or sight.saved)
        judged = self.place.judged(run, run.rung) if can_be else None
        found = {"why": sight.why[:500]} if sight.why else judged
        if found is None:
            return None
        kind = {"kind": "Fail"} if "why" in found else {"kind": "Score", "solved": sight.reason in _GOALS}
        return {"trial": run.trial, "seed": run.seed, **kind, **found}

    def _verdict(self, run: Run) -> Entry | None:
        """How a run of the best trial is judged anew, on games that it was not chosen by; None while it is, and where it was."""
        state, found = self.journal.state, None
        if run.key not in {**state.verdicts, **self.unjudged} and self.sight(run).rests:
            found = self.place.judged(run, len(state.known.rungs))
        if found is not None and "why" in found:
            self.unjudged[run.key] = found["why"]
            return None
        return None if found is None else {"kind": "Verdict", "trial": run.trial, "seed": run.seed, **found}


def brought(job: Mapping[str, Any], experiment: Experiment, run: Run) -> dict[str, Any]:
    """The stored ``job`` of a run with the settings and the fork that a member of a population has by now."""
    return apply_overrides(job, [] if experiment.spec.population is None else sorted(run.overrides.items()))


def is_saved(run: Run, annotations: Mapping[str, str], status: RLJobStatus) -> bool:
    """Whether a run has written the checkpoint that it was asked for at its rung, with the weights of its newest fork, if any."""
    answer = status.controller.checkpoint_request
    if run.forks and _answer_to(run, status) is None:
        return False
    answered = answer is not None and answer.done and answer.requested_at == annotations.get(CHECKPOINT_ANNOTATION)
    return answered and annotations.get(RUNG_ANNOTATION) == str(run.rung)


def refusal(run: Run, status: RLJobStatus, *, ended: bool) -> str:
    """Why a run has not taken, and will not take, the weights of its newest fork; empty where it has, or may."""
    if not run.forks:
        return ""
    if (fork := _answer_to(run, status)) is not None:
        return (fork.message or "its learner gave no reason") if fork.state == "Refused" else ""
    return "the run had ended before" if ended else ""


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

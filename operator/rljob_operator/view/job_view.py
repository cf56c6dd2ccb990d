"""A job as its user sees it: what is stored, what the controller wrote, and what runs; and the columns of tables of jobs.
Views are made of it, wherever it runs."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rljob.api.conditions import ConditionType, Reason
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import CheckpointStatus, RLJobStatus

from rljob_operator.view.words import age, number

LOST = "Lost"
"""State of a run that has not ended and has no controller: that was killed, or its machine was restarted."""

STALE_SECONDS = 150.0
_WATCHED = ("Starting", "Restoring", "Running", "Degraded")
"""States in which a status is written every half minute, and every minute and a half where there is little to tell."""


@dataclass(frozen=True, slots=True)
class JobView:
    """One look at a job.

    Attributes:
        place: where it is, as its user's verbs name it: the folder of a run, or namespace/name.
        document: the stored object, the job as written; empty where it can't be read.
        status: the newest status; a new one where none was written yet.
        attended: whether a controller is there to act on it. Jobs of a cluster are taken to be attended: what speaks against it
            is in ``problem``.
        running: the members that run, as far as was looked.
        figures: what the learner says; without an answer what the job's status knows of it, or nothing.
        queue_fill_percent: of the learner's queue, as the job's status knows it; None where the learner itself was asked.
        servers: the status document of each inference server of its own that runs, by name.
        problem: what kept this look from showing all, or makes it doubtful; a sentence.
        resumed_by: the command that gives it a controller again; empty where there is none.
        further: columns that are shown of jobs of this kind alone, when there is room: heading -> value.
    """

    place: str
    document: Mapping[str, Any]
    status: RLJobStatus
    attended: bool
    running: Collection[str]
    figures: LearnerStatus = field(default_factory=LearnerStatus)
    queue_fill_percent: int | None = None
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problem: str = ""
    resumed_by: str = ""
    further: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The job's name, or the last part of its place where that is unknown."""
        metadata = self.document.get("metadata")
        return str(metadata.get("name", "")) if isinstance(metadata, dict) else self.place.rpartition("/")[2]

    @property
    def state(self) -> str:
        """The job's state in one word, as the controller says; or what it is without one."""
        if not self.attended and not self.status.finished and self.status.state != "SessionEnded":
            return LOST
        return self.status.state or "Starting"

    @property
    def desired_actors(self) -> int:
        """How many actors there should be."""
        return self.status.autoscaling.desired_replicas or self.status.actors.replicas

    @property
    def stopped(self) -> bool:
        """Whether its controller has ended it in good order as its user asked, and nothing of it runs."""
        return self.status.state == "SessionEnded" and self.status.controller.active_since is None

    @property
    def checkpoint(self) -> CheckpointStatus | None:
        """The newest verified checkpoint; None where there is none, or where it went with the learner's pod."""
        valid = self.status.condition(ConditionType.CHECKPOINT_VALID)
        return self.status.checkpoint if valid is None or valid.reason != Reason.GONE else None

    def active_seconds(self, now: float) -> float:
        """How long the job has been at work until ``now`` (seconds since 1970): without suspensions, and without the time
        after its end or after whatever ended it unseen."""
        memory = self.status.controller
        if memory.active_since is None:
            return memory.spent_active_seconds
        if not self.attended and not self.running:
            return float(self.status.active_seconds)
        return memory.spent_active_seconds + max(0.0, now - memory.active_since)


def stale_seconds(status: RLJobStatus, now: float) -> float | None:
    """How old the status of a job at work is, where it should be newer; None where it is as new as it should be."""
    if status.finished or status.controller.active_since is None or status.state not in _WATCHED:
        return None
    old = now - (status.progress.last_update_time or now)
    return old if old > STALE_SECONDS else None


Column = tuple[str, Callable[[JobView], str]]


def table(runs: Sequence[JobView], *, wide: bool, namespaces: bool = False) -> list[str]:
    """Heading and one line a job, columns aligned; ``namespaces``: each job's namespace before its name."""
    columns = (NAMESPACE, *COLUMNS) if namespaces else COLUMNS
    columns += WIDE_COLUMNS if wide else ()
    further = list(runs[0].further) if wide and runs else []  # columns that only some kinds of jobs have
    rows = [[cell(run) for _, cell in columns] + [run.further.get(each, "-") for each in further] for run in runs]
    return aligned([[heading for heading, _ in columns] + further, *rows])


def aligned(rows: Sequence[Sequence[str]], between: str = "   ") -> list[str]:
    """Rows of as many cells each as lines, cells below each other, with ``between`` from one to the next."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [between.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _depth(run: JobView) -> str:
    depth, bound = run.figures.queue_depth_batches, run.figures.queue_bound_batches
    if bound is None:
        return number(run.queue_fill_percent, "{} %")
    return f"{number(depth, '{:,.0f}')}/{number(bound, '{:,.0f}')}"


def lag(figures: LearnerStatus) -> str:
    """Policy lag in updates: the 95th percentile where it is known, else the mean."""
    p95 = figures.policy_lag_updates_p95
    return number(p95 if p95 is not None else figures.policy_lag_updates, "{:,.0f}")


def updates(run: JobView) -> str:
    """The learner's count, or what the job's status knows of it."""
    said = run.figures.updates
    return number(said if said is not None else run.status.progress.learner_updates, "{:,}")


def _checkpoint(run: JobView) -> str:
    found = run.checkpoint
    return "-" if found is None or found.time is None else f"{found.step:,} ({age(time.time() - found.time)})"


def _return(run: JobView) -> str:
    live = run.figures.mean_return
    return number(live if live is not None else run.status.progress.eval_return, "{:.1f}")


def _since_start(run: JobView, seconds: Callable[[float], float]) -> str:
    """``seconds`` at this moment as an age; a dash before the job has started."""
    return "-" if run.status.start_time is None else age(seconds(time.time()))


NAMESPACE: Column = ("NAMESPACE", lambda run: str((run.document.get("metadata") or {}).get("namespace", "-")))
COLUMNS: tuple[Column, ...] = (
    ("NAME", lambda run: run.name),
    ("STATE", lambda run: run.state),
    ("ACTORS", lambda run: f"{run.status.actors.ready}/{run.desired_actors}"),
    ("DEPTH", _depth),
    ("STEPS/S", lambda run: number(run.figures.steps_per_second, "{:,.0f}")),
    ("RETURN", _return),
    ("LAG", lambda run: lag(run.figures)),
    ("PROGRESS", lambda run: number(run.status.progress.percent, "{} %")),
    ("DURATION", lambda run: _since_start(run, run.active_seconds)),
    ("AGE", lambda run: _since_start(run, lambda now: now - (run.status.start_time or now))),
)
WIDE_COLUMNS: tuple[Column, ...] = (
    ("UPDATES", updates),
    ("CHECKPOINT (AGE)", _checkpoint),
    ("RESTARTS", lambda run: f"{run.status.restarts.counted}+{run.status.restarts.ignored}"),
    ("FORK", lambda run: f"{run.status.fork.id} {run.status.fork.state}" if run.status.fork else "-"),
    ("SCHEDULED", lambda run: number(run.status.following and run.status.following.scheduled, "{}")),
)

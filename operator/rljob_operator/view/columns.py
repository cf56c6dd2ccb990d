"""Jobs in columns: pure functions from what was seen to text."""

import time
from collections.abc import Callable, Sequence

from rljob.api.learner_status import LearnerStatus

from rljob_operator.view.job_view import JobView
from rljob_operator.view.words import age, number

Column = tuple[str, Callable[[JobView], str]]


def table(runs: Sequence[JobView], *, wide: bool, namespaces: bool = False) -> list[str]:
    """Heading and one line a job, columns aligned; ``namespaces``: each job's namespace before its name."""
    columns = (NAMESPACE, *COLUMNS) if namespaces else COLUMNS
    if wide:
        columns += WIDE_COLUMNS + _further(runs)
    return aligned([[heading for heading, _ in columns], *([cell(run) for _, cell in columns] for run in runs)])


def aligned(rows: Sequence[Sequence[str]], between: str = "   ") -> list[str]:
    """Rows of as many cells each as lines, cells below each other, with ``between`` from one to the next."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [between.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _further(runs: Sequence[JobView]) -> tuple[Column, ...]:
    """The columns that only some kinds of jobs have."""
    return tuple((heading, _further_cell(heading)) for heading in (runs[0].further if runs else ()))


def _further_cell(heading: str) -> Callable[[JobView], str]:
    return lambda run: run.further.get(heading, "-")


def _figure(name: str, form: str) -> Callable[[JobView], str]:
    return lambda run: number(getattr(run.figures, name), form)


def _actors(run: JobView) -> str:
    desired = run.status.autoscaling.desired_replicas or run.status.actors.replicas
    return f"{run.status.actors.ready}/{desired}"


def _depth(run: JobView) -> str:
    depth, bound = run.figures.queue_depth_batches, run.figures.queue_bound_batches
    if bound is None:
        return number(run.queue_fill_percent, "{} %")
    return f"{number(depth, '{:,.0f}')}/{number(bound, '{:,.0f}')}"


def _return(run: JobView) -> str:
    live = run.figures.mean_return
    return number(live if live is not None else run.status.progress.eval_return, "{:.1f}")


def lag(figures: LearnerStatus) -> str:
    """Policy lag in updates: the 95th percentile where it is known, else the mean."""
    p95 = figures.policy_lag_updates_p95
    return number(p95 if p95 is not None else figures.policy_lag_updates, "{:,.0f}")


def updates(run: JobView) -> str:
    """The learner's count, or what the job's status knows of it."""
    said = run.figures.updates
    return number(said if said is not None else run.status.progress.learner_updates, "{:,}")


def _progress(run: JobView) -> str:
    percent = run.status.progress.percent
    return "-" if percent is None else f"{percent} %"


def _age(run: JobView) -> str:
    started = run.status.start_time
    return "-" if started is None else age(time.time() - started)


def _duration(run: JobView) -> str:
    return "-" if run.status.start_time is None else age(run.active_seconds(time.time()))


def _checkpoint(run: JobView) -> str:
    found = run.checkpoint
    return "-" if found is None or found.time is None else f"{found.step:,} ({age(time.time() - found.time)})"


def _restarts(run: JobView) -> str:
    return f"{run.status.restarts.counted}+{run.status.restarts.ignored}"


def _fork(run: JobView) -> str:
    return "-" if (found := run.status.fork) is None else f"{found.id} {found.state}"


def _scheduled(run: JobView) -> str:
    return "-" if (found := run.status.following) is None else number(found.scheduled, "{}")


def _namespace(run: JobView) -> str:
    return str((run.document.get("metadata") or {}).get("namespace", "-"))


NAMESPACE: Column = ("NAMESPACE", _namespace)
COLUMNS: tuple[Column, ...] = (
    ("NAME", lambda run: run.name),
    ("STATE", lambda run: run.state),
    ("ACTORS", _actors),
    ("DEPTH", _depth),
    ("STEPS/S", _figure("steps_per_second", "{:,.0f}")),
    ("RETURN", _return),
    ("LAG", lambda run: lag(run.figures)),
    ("PROGRESS", _progress),
    ("DURATION", _duration),
    ("AGE", _age),
)
WIDE_COLUMNS: tuple[Column, ...] = (
    ("UPDATES", updates),
    ("CHECKPOINT (AGE)", _checkpoint),
    ("RESTARTS", _restarts),
    ("FORK", _fork),
    ("SCHEDULED", _scheduled),
)

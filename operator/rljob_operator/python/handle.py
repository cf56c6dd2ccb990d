"""``rljob.Run``: the handle of a run on this machine or a cluster. It holds no state: each look asks anew. A
run's figures come as plain columns, and are drawn in a notebook as HTML with its curve, elsewhere as a line.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rljob.api.exit_codes import EXIT_UNAVAILABLE
from rljob.api.learner_status import LearnerStatus, Verdict
from rljob.errors import CommandRefused, UsageError

from rljob_operator.verbs.jobs import Job, Place
from rljob_operator.verbs.options import jobs_of
from rljob_operator.view import run_figures
from rljob_operator.view.job_view import JobView, table
from rljob_operator.view.reasons import told, why


class Metrics(dict[str, list[Any]]):
    """Column -> its values, one for each record, oldest first; None where a record lacks it."""

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]]) -> Metrics:
        """The columns of ``records``, in the order in which they first come."""
        names = dict.fromkeys(name for record in records for name in record)
        return cls({name: [record.get(name) for record in records] for name in names})

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame. Raises UsageError where pandas is not installed."""
        try:
            from pandas import DataFrame  # type: ignore[import-untyped]
        except ImportError:
            raise UsageError(
                "metrics().to_pandas() needs pandas: pip install pandas; the columns are there without"
            ) from None
        return DataFrame(self)


if TYPE_CHECKING:
    from rljob.policy.trained import Policy

_DRAWN_SECONDS: Final = 5.0
"""Between two pictures of a run that is waited for."""


class Status(NamedTuple):
    """``state``: in one word, as `rljob get` shows it. ``message``: what there is to say about it, the reason of a failure above
    all; may be empty."""

    state: str
    message: str


class Run:
    """A job that `rljob.run` has started or `rljob.attach` found. Made by them.

    name: the run's folder as a whole path, or the job's name on a cluster. All methods raise UsageError where the run, or the
    cluster, is not there or refuses.
    """

    def __init__(self, name: str, place: Place) -> None:
        self._name, self._place = name, place

    def __repr__(self) -> str:
        return f"<rljob.Run {self._name}>"

    def __fspath__(self) -> str:
        """Its folder, so that a run of this machine may stand wherever a path to one is asked for."""
        if self.folder is None:
            raise UsageError(f"{self._name} is a cluster's job: it has no folder here")
        return self._name

    def _repr_html_(self) -> str:

        return html(self._name, lambda: (*self.status, self.verdict), self.folder)

    @property
    def folder(self) -> Path | None:
        """The run's folder; None of a cluster's job."""
        return None if any(self._place) else Path(self._name)

    @property
    def status(self) -> Status:
        """The state now, and what there is to say about it."""
        seen = self.look()
        return Status(seen.state, told(seen))

    @property
    def verdict(self) -> Verdict | None:
        """The newest evaluation that was played to its end: ``mean``, ``standard_error``, ``episodes``. None before there is one.

        The mean alone is known here of a cluster's job whose learner has ended.
        """
        if self.folder is not None:
            found = LearnerStatus.lenient({"evaluations": self._records("evaluation")}).evaluations
        else:
            seen = self.look(figures=True)
            mean = seen.status.progress.eval_return
            found = seen.figures.evaluations or (() if mean is None else (Verdict(mean=mean),))
        return next((each for each in reversed(found) if each.finished), None)

    def wait(self, timeout_seconds: float | None = None, progress: bool = False) -> Run:
        """Wait until nothing of the run works any more: it is complete, has failed, or was stopped. Answers the run itself.

        Ctrl-C ends the waiting, not the run. ``progress`` shows a curve in a notebook, and lines of figures elsewhere. Raises
        TimeoutError where it has not ended within ``timeout_seconds``; it goes on. A cluster that is away for a moment is waited
        for.
        """

        deadline = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
        show, due = screen(self) if progress else None, 0.0
        with self._asking() as ask:
            while True:
                state, pause_seconds = "not seen", 1.0
                try:
                    seen, pause_seconds = ask(lambda job: (job.look(figures=progress), job.pause_seconds))
                except CommandRefused as problem:
                    if problem.exit_code != EXIT_UNAVAILABLE:
                        raise
                else:
                    state, over, now = seen.state, self._is_over(seen), time.monotonic()
                    if show is not None and (over or now >= due):
                        show(seen)
                        due = time.monotonic() + _DRAWN_SECONDS + 10.0 * (time.monotonic() - now)
                    if over:
                        return self
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"{self._name} is {state} after {timeout_seconds:g} s, and goes on")
                time.sleep(min(pause_seconds, max(0.0, deadline - time.monotonic())))

    def metrics(self, kind: str | None = None) -> Metrics:
        """The figures over time as columns of equal length, with None where a record lacks one; ``.to_pandas()`` makes a table.

        kind: instead, the records of one kind: "evaluation", "checkpoint", "machine" or "learner".
        """
        return Metrics.of(self._records(kind))

    def why(self) -> str:
        """What `rljob why` says: the last decision about the actors, conditions that are not as they should be, failures."""
        return "\n".join(why(self.look()))

    def logs(self, who: str | None = None, tail: int = 20) -> str:
        """The last lines of each log, or of one role's or member's, such as "learner", "actor-1" or, on this machine,
        "controller"."""
        found: list[str] = []
        with self._asking() as ask:
            ask(
                lambda job: job.logs(
                    who,
                    tail=tail,
                    follow=False,
                    show=lambda _, lines: found.extend(f"{name}  {line}" for name, line in lines),
                )
            )
        return "\n".join(found)

    def policy(self) -> Policy:
        """What it has learned, as `rljob.load_policy` gives it: the best judged policy, or else the newest. Any time."""
        from rljob.policy import load_policy

        if self.folder is not None:
            return load_policy(self.folder)
        from rljob_operator.verbs.export import into

        with tempfile.TemporaryDirectory(prefix="rljob-") as beside, self._asking() as ask:
            fetched = Path(beside) / "policy"
            ask(lambda job: into(fetched, lambda archive: job.policy(archive, lambda _: None, 120.0)))
            return load_policy(fetched)

    def stop(self, timeout_seconds: float = 180.0) -> None:
        """End the run as `rljob stop` does, with a checkpoint, and wait until nothing of it runs. It can be resumed."""
        with self._asking() as ask:
            ask(lambda job: job.stop(lambda _: None, timeout_seconds))

    def look(self, *, figures: bool = False) -> JobView:
        """All that the verbs see of the run now; ``figures`` also asks its learner."""
        with self._asking() as ask:
            seen: JobView = ask(lambda job: job.look(figures=figures))
        return seen

    @contextmanager
    def _asking(self) -> Iterator[Callable[[Callable[[Job], Any]], Any]]:
        with asking_jobs(self._place) as ask:
            job = ask(lambda jobs: jobs.chosen(self._name, or_experiment=True))
            yield lambda work: ask(lambda _: work(job))

    def _is_over(self, seen: JobView) -> bool:
        """A run is over with its controller, which writes the report last; a cluster's job by its status."""
        return not seen.attended if self.folder is not None else seen.status.finished or seen.stopped

    def _records(self, kind: str | None) -> list[dict[str, Any]]:
        """The records of a kind in ``metrics.jsonl``, oldest first; None: those of figures, which have none."""
        if self.folder is None:
            raise UsageError(
                f"{self._name}: figures over time of a cluster's job are in Prometheus (docs/monitoring.md)"
            )
        from rljob.telemetry.recorder import KINDS, METRICS_FILE, read_records

        if kind not in (None, *KINDS):
            raise UsageError(f"metrics of {kind!r}: there are no records of this kind; there are {', '.join(KINDS)}")
        try:
            return [each for each in read_records(self.folder / METRICS_FILE) if each.get("kind") == kind]
        except FileNotFoundError:
            return []


@contextmanager
def asking_jobs(place: Place) -> Iterator[Callable[[Callable[[Any], Any]], Any]]:
    """Gives ``ask(work)``: what ``work`` answers or raises, given the `Jobs` of ``place``; of a cluster `ClusterJobs`, with one
    login for all that is asked.

    Ctrl-C gives up waiting for an answer; what was asked then comes to its end by itself.
    """
    with ExitStack() as stack:
        thread = ThreadPoolExecutor(1, "rljob-verb")
        stack.callback(thread.shutdown, wait=False)
        jobs_open = ExitStack()
        stack.callback(thread.submit, jobs_open.close)
        jobs = thread.submit(lambda: jobs_open.enter_context(jobs_of(place))).result()
        yield lambda work: thread.submit(work, jobs).result()


_STYLE: Final = """<style>
.rljob-run { max-width: 560px; --c0: #3b82bd; --c1: #d1661b; --c7: #7d858c; }
.rljob-run svg { width: 100%; height: auto; }
.rljob-run .grid { stroke: currentColor; stroke-opacity: .15; } .rljob-run text { fill: currentColor; font-size: 11.5px; }
.rljob-run .line, .rljob-run .error { fill: none; stroke-width: 1.6; } .rljob-run .dashed { stroke-dasharray: 5 5; }
.rljob-run .f0 { fill: var(--c0); } .rljob-run .f1 { fill: var(--c1); } .rljob-run .f7 { fill: var(--c7); }
.rljob-run .s0 { stroke: var(--c0); } .rljob-run .s1 { stroke: var(--c1); } .rljob-run .s7 { stroke: var(--c7); }
</style>"""
"""Colours for the report's charts on a page whose own are not known, light or dark."""


def html(name: str, look: Callable[[], tuple[str, str, Verdict | None]], folder: Path | None) -> str:
    """The run's name and what ``look`` answers: its state, what there is to say, and its verdict; and the learning curve in
    ``folder``. Never raises for a run that is gone or a cluster that does not answer: that is said in their place."""
    try:
        state, message, verdict = look()
        said = [message, "" if verdict is None else f"verdict: {run_figures.verdict(verdict)}"]
        parts = [f"<b>{escape(state)}</b>", *(f"<div>{escape(each)}</div>" for each in said if each)]
        parts += [] if folder is None else _curve(folder)
    except (UsageError, OSError) as problem:
        parts = [f"<div>{escape(str(problem))}</div>"]
    return f'{_STYLE}<div class="rljob-run"><code>{escape(name)}</code> {"".join(parts)}</div>'


def _curve(folder: Path) -> list[str]:
    """The report's learning curve and its legend; nothing before there is one."""
    from rljob.telemetry.run_charts import learning_charts
    from rljob.telemetry.run_folder import read_run_folder

    charts = learning_charts(read_run_folder(folder))[:1]
    legend = [
        f'<span style="color:var(--c{n})">&#9679;</span> {escape(of)} ' for one in charts for of, n, _ in one.legend
    ]
    return [str(one.svg) for one in charts] + legend


def screen(run: object) -> Callable[[JobView], None]:
    """What to call with each look at a run that is waited for: draws its picture anew in a notebook, else prints a line of
    `rljob get`, and the heading before the first."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        drawn = import_module("IPython.display").display(run, display_id=True)
        return lambda seen: drawn.update(run)
    first = True

    def line(seen: JobView) -> None:
        nonlocal first
        print("\n".join(table([seen], wide=False)[0 if first else 1 :]), flush=True)
        first = False

    return line

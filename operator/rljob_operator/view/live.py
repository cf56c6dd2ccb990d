"""What `rljob run` and `rljob top` show: one screen, drawn again and again in a terminal, else a line now and then."""

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rljob.api import RLJob
from rljob.api.conditions import Reason
from rljob.api.learner_status import ActorStatus

from rljob_operator.core.member import Phase, Role
from rljob_operator.core.turn import Turn
from rljob_operator.view.job_view import JobView, lag, updates
from rljob_operator.view.reasons import is_odd
from rljob_operator.view.run_figures import (
    blocked_fraction,
    evaluation,
    figures,
    gpu,
    learner_status,
    reported,
    stage_seconds,
    states_line,
    stop_rule,
    stored,
    warnings,
    way_covered,
)
from rljob_operator.view.words import age, bytes_of, duration, milliseconds, number, percent

_UNWELL = "bold red"
_SHOWN_CONDITIONS = ("Accepted", "Progressing", "ScalingLimited", "CheckpointValid", "FailureTarget", "Failed")


def screen(run: JobView, before: JobView | None = None) -> RenderableType:
    """The whole screen. With the look ``before``, an actor's share of blocked time is that since then, else that of its life."""
    status = run.status
    at_work = age(run.active_seconds(time.time())) if status.start_time is not None else ""
    title = f"{run.name}  {run.state}  {at_work}".rstrip()
    parts: list[RenderableType] = [_figures(run)]
    if status.inference.desired or run.servers:
        parts.append(_servers(run, before))
    parts.append(_actors(run.figures.actors, before.figures.actors if before is not None else ()))
    if (taken := _processes(run)) is not None:
        parts.append(taken)
    if status.autoscaling.last_decision:
        parts.append(Text(f"last decision: {status.autoscaling.last_decision}"))
    parts += [Text(f"! {text}", style=_UNWELL) for text in unwell(run)]
    return Panel(Group(*parts), title=title, title_align="left", border_style="cyan")


def unwell(run: JobView) -> list[str]:
    """What is not as it should be, a line each."""
    found = []
    if not run.attended and run.running:
        found.append(f"no controller; these are ending: {', '.join(run.running)}")
    odd = (
        each
        for each in run.status.conditions
        if each.type in _SHOWN_CONDITIONS and each.reason != Reason.MISSING and is_odd(each)
    )
    found += [f"{each.type} {each.status}, {each.reason}: {each.message}".rstrip(": ") for each in odd]
    if run.problem:
        found.append(run.problem)
    return found


def _figures(run: JobView) -> RenderableType:
    figures, status = run.figures, run.status
    depth, bound = figures.queue_depth_batches, figures.queue_bound_batches
    share = depth / bound if depth is not None and bound else None
    if bound is None and run.queue_fill_percent is not None:
        share = run.queue_fill_percent / 100
    progress, servers = status.progress, status.inference
    cells = {
        "queue depth": f"{number(depth, '{:,.0f}')} of {number(bound, '{:,.0f}')} batches ({percent(share)})",
        "starved": percent(figures.learner_wait_fraction),
        "blocked": percent(figures.actors_blocked_fraction),
        "lag": f"{lag(figures)} updates",
        "steps/s": number(figures.steps_per_second, "{:,.0f}"),
        "updates/s": number(figures.updates_per_second, "{:,.1f}"),
        "return": number(figures.mean_return, "{:.2f}"),
        "evaluation": evaluation(figures),
        **reported(figures),
        **stored(figures),
        "updates": updates(run),
        "actors": f"{status.actors.ready} ready of {run.desired_actors}"
        + (f", {status.actors.draining} draining" if status.actors.draining else ""),
        **({"inference": f"{servers.ready} ready of {servers.desired}"} if servers.desired else {}),
        **gpu(figures),
        "progress": "-" if progress.percent is None else f"{progress.percent} %",
        "to go": duration(progress.estimated_seconds_remaining),
        "checkpoint": _checkpoint(run),
    }
    table = Table.grid(padding=(0, 3))
    entries = [Text.assemble((f"{label} ", "bright_black"), (value, "bold")) for label, value in cells.items()]
    for start in range(0, len(entries), 4):
        table.add_row(*entries[start : start + 4])
    return table


def _checkpoint(run: JobView) -> str:
    found = run.checkpoint
    if found is None or found.time is None:
        return "none yet"
    return f"update {found.step:,}, {age(time.time() - found.time)} old"


def _servers(run: JobView, before: JobView | None) -> RenderableType:
    """Inference servers of their own; rates are those since the look ``before``."""
    rows = []
    for name in sorted({f"inference-{k}" for k in range(run.status.inference.desired)} | set(run.servers)):
        server, earlier = run.servers.get(name, {}), before.servers.get(name, {}) if before is not None else {}
        state = str(server.get("state", "no answer" if name in run.running else "not running"))
        rate, batch = number(_rate(server, earlier), "{:,.0f}"), number(server.get("batch_mean"), "{:.1f}")
        half, most = (milliseconds(server.get(f"latency_{each}_seconds")) for each in ("p50", "p99"))
        rows.append((name, state, rate, batch, half, most, number(server.get("policy_version"), "{:,}")))
    return _table(("INFERENCE", "STATE", "ANSWERS/S", "BATCH", "P50", "P99", "WEIGHTS"), rows)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Names and states to the left, figures to the right."""
    table = Table(box=None, padding=(0, 1), header_style="bright_black")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place == 0 or heading == "STATE" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _processes(run: JobView) -> RenderableType | None:
    """What the processes of each role take, as the learner knows it, and each inference server as it says itself."""
    servers = {name: server.get("process") for name, server in sorted(run.servers.items())}
    rows = []
    for name, taken in {**run.figures.processes, **servers}.items():
        if isinstance(taken, Mapping):
            sizes = [bytes_of(taken.get(f"{each}_bytes")) for each in ("rss", "shm", "receive_queue", "send_queue")]
            cores, files = number(taken.get("cpu_cores"), "{:.2f}"), number(taken.get("open_files"), "{:,.0f}")
            rows.append((name, cores, *sizes[:2], files, *sizes[2:]))
    return _table(("PROCESSES", "CPU", "MEMORY", "SHARED", "FILES", "UNREAD", "UNSENT"), rows) if rows else None


def _rate(now: Mapping[str, Any], before: Mapping[str, Any]) -> float | None:
    """Answers a second between two statuses: a server's stages add up to the time that passed for it."""
    spent = stage_seconds(now) - stage_seconds(before)
    after, earlier = now.get("requests_total"), before.get("requests_total", 0)
    if not (isinstance(after, int | float) and isinstance(earlier, int | float)):
        return None
    return (after - earlier) / spent if spent > 0 and after >= earlier else None


def _actors(actors: Sequence[ActorStatus], before: Sequence[ActorStatus]) -> RenderableType:
    earlier = {actor.name: actor for actor in before}
    rows = (
        (
            actor.name,
            actor.state or "-",
            number(actor.steps_per_second, "{:,.0f}"),
            percent(blocked_fraction(actor, earlier.get(actor.name))),
            number(actor.policy_version, "{:,}"),
            number(actor.slot, "{}"),
            number(actor.age_seconds, "{:.0f}s ago"),
        )
        for actor in actors
    )
    return _table(("ACTOR", "STATE", "STEPS/S", "BLOCKED", "WEIGHTS", "SLOT", "HEARD"), rows)


class LiveView:
    """The screen of `rljob top`, with what ends the job, every member that is not simply ready, and what to know now."""

    def __init__(self, job: RLJob, console: Console) -> None:
        self._name = job.metadata.name
        self._rule = stop_rule(job)
        self._live = Live(console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.__exit__(None, None, None)

    def show(self, turn: Turn) -> None:
        """Draw this reconciliation."""
        seen, status = turn.observed, turn.decision.status
        run = JobView(
            self._name,
            {"metadata": {"name": self._name}},
            status,
            attended=True,
            running=[member.name for member in seen.members if member.phase in (Phase.READY, Phase.DRAINING)],
            figures=learner_status(turn),
            servers={member.name: {"state": str(member.phase)} for member in seen.of(Role.INFERENCE)},
        )
        notes = [f"until {self._rule}", states_line(turn)]
        if status.is_true("Suspended"):
            at = f" at update {status.checkpoint.step:,}" if status.checkpoint is not None else ""
            notes.append(f"suspended{at}; `rljob resume` in another terminal resumes it; Ctrl-C ends the session")
        warned = [Text(f"! {text}", style="bold red") for text in warnings(turn, conditions=False)]
        # Before the screen, whose end is cut off where a terminal is too low for all actors.
        self._live.update(Group(*map(Text, filter(None, notes)), *warned, screen(run)))


class RunConsole(Console):
    """Shows a run, which goes on when the program that reads this has ended, as in `rljob run job.yaml | head`."""

    def on_broken_pipe(self) -> None:
        """Show nothing more; say so on standard error, which may lead to the same place."""
        self.quiet = True
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        with contextlib.suppress(OSError):
            sys.stderr.write("rljob: the output was closed; the run continues (rljob get shows it)\n")


def say(console: Console, text: str) -> None:
    """Print a line as it is; nothing where the terminal is gone, and with it the reader."""
    with contextlib.suppress(OSError):
        console.print(text, highlight=False, markup=False, soft_wrap=True)


INTERVAL_SECONDS = 5.0


class LineView:
    """Prints a line of figures every ``INTERVAL_SECONDS`` and one for each change of state or new warning."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = self._shown = 0.0
        self._said = ""
        self._warned: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def show(self, turn: Turn) -> None:
        """Print what this reconciliation has brought, if anything."""
        for line in self._new(turn):
            self._console.print(
                f"{duration(turn.elapsed_seconds):>7}  {line}", highlight=False, markup=False, soft_wrap=True
            )

    def _new(self, turn: Turn) -> Iterator[str]:
        state = ": ".join(filter(None, (str(turn.decision.state), states_line(turn))))
        if state != self._said:
            yield state
        now, before, self._said = warnings(turn), self._warned, state
        yield from (f"warning: {text}" for text in now if text not in before)
        self._warned, sample = now, turn.observed.learner
        if sample is not None and sample.taken_seconds != self._shown and turn.elapsed_seconds >= self._next:
            self._shown, self._next = sample.taken_seconds, turn.elapsed_seconds + INTERVAL_SECONDS
            words = [way_covered(turn), *(f"{label} {value}" for label, value in figures(turn).items())]
            yield "  ".join(filter(None, words))

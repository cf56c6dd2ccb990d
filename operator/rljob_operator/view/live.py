"""What `rljob run` shows: one screen that is drawn again and again in a terminal, else a line now and then."""

import contextlib
import os
import sys
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rljob.api import RLJob

from rljob_operator.core.member import Phase
from rljob_operator.core.turn import Turn
from rljob_operator.view.run_figures import blocked_fraction, figures, states_line, stop_rule, warnings, way_covered
from rljob_operator.view.words import duration, number, percent

_COLOURS = {
    Phase.READY: "green",
    Phase.STARTING: "yellow",
    Phase.DRAINING: "yellow",
    Phase.EXITED: "red",
    Phase.ABSENT: "bright_black",
}


class LiveView:
    """Progress with ETA, the job's figures, and each member's state."""

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
        self._live.update(self._screen(turn))

    def _screen(self, turn: Turn) -> RenderableType:
        parts: list[RenderableType] = [self._progress(turn), self._figures(turn), self._members(turn)]
        if turn.decision.status.is_true("Suspended"):
            saved = turn.decision.status.checkpoint
            at = f" at update {saved.step:,}" if saved is not None else ""
            parts.append(Text(f"suspended{at}; `rljob resume` in another terminal resumes it; Ctrl-C ends the session"))
        parts += [Text(f"! {text}", style="bold red") for text in warnings(turn)]
        return Panel(
            Group(*parts),
            title=f"{self._name}  {turn.decision.state}  {duration(turn.elapsed_seconds)}",
            title_align="left",
            border_style="cyan",
        )

    def _progress(self, turn: Turn) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        row.add_row(
            Text(self._rule, style="bold"),
            ProgressBar(total=100, completed=turn.decision.status.progress.percent or 0, width=30),
            Text(way_covered(turn)),
        )
        return row

    def _figures(self, turn: Turn) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        cells = [
            Text.assemble((f"{label} ", "bright_black"), (value, "bold")) for label, value in figures(turn).items()
        ]
        for start in range(0, len(cells), 4):
            table.add_row(*cells[start : start + 4])
        return table

    def _members(self, turn: Turn) -> RenderableType:
        learner = turn.observed.learner
        actors = {actor.name: actor for actor in learner.actors} if learner is not None else {}
        table = Table(box=None, padding=(0, 2), header_style="bright_black")
        for heading in ("member", "state", "steps/s", "blocked", "weights", ""):
            table.add_column(heading)
        for member in turn.observed.members:
            if member.phase is Phase.EXITED and member.asked:
                continue
            actor = actors.get(member.name) if member.phase is Phase.READY else None
            table.add_row(
                member.name,
                Text(str(actor.state if actor else member.phase), style=_COLOURS[member.phase]),
                number(actor.steps_per_second, "{:,.0f}") if actor else "",
                percent(blocked_fraction(actor)) if actor else "",
                number(actor.policy_version, "{:,}") if actor else "",
                Text(member.last_words if member.failed else "", style="red", overflow="ellipsis", no_wrap=True),
            )
        return table


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
        self._next = 0.0
        self._shown = 0.0
        self._state = ""
        self._warned: tuple[str, ...] = ()
        self._members = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def show(self, turn: Turn) -> None:
        """Print what this reconciliation has brought, if anything."""
        state, members = str(turn.decision.state), states_line(turn)
        if state != self._state or members != self._members:
            self._print(turn, f"{state}" + (f": {members}" if members else ""))
            self._state, self._members = state, members
        current = warnings(turn)
        for text in current:
            if text not in self._warned:
                self._print(turn, f"warning: {text}")
        self._warned = current
        sample = turn.observed.learner
        if sample is not None and sample.taken_seconds != self._shown and turn.elapsed_seconds >= self._next:
            self._shown = sample.taken_seconds
            self._next = turn.elapsed_seconds + INTERVAL_SECONDS
            words = [
                way_covered(turn),
                *(f"{label} {value}" for label, value in figures(turn).items()),
            ]
            self._print(turn, "  ".join(word for word in words if word))

    def _print(self, turn: Turn, text: str) -> None:
        self._console.print(
            f"{duration(turn.elapsed_seconds):>7}  {text}", highlight=False, markup=False, soft_wrap=True
        )

"""The live view: one screen that is drawn again and again while the job runs in a terminal."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rljob.api import RLJob

from rljob_operator.core.member import Phase
from rljob_operator.core.turn import Turn
from rljob_operator.view.figures import blocked_fraction, figures, stop_rule, warnings, way_covered
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

    def __enter__(self) -> LiveView:
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
            parts.append(Text(f"suspended{at}; `rljob resume` in another terminal goes on, Ctrl-C ends the session"))
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

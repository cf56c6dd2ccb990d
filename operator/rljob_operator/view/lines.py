"""The plain view: one line an interval, for logs and pipes."""

from __future__ import annotations

from rich.console import Console

from rljob_operator.core.turn import Turn
from rljob_operator.view.figures import figures, states_line, warnings, way_covered
from rljob_operator.view.words import duration

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

    def __enter__(self) -> LineView:
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

"""What `rljob run` shows: one screen that is drawn again and again in a terminal, else a line now and then."""

import contextlib
import os
import sys
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text
from rljob.api import RLJob

from rljob_operator.core.member import Phase, Role
from rljob_operator.core.turn import Turn
from rljob_operator.view.job_view import JobView
from rljob_operator.view.run_figures import figures, learner_status, states_line, stop_rule, warnings, way_covered
from rljob_operator.view.top import screen
from rljob_operator.view.words import duration


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

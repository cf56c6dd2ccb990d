"""``rljob top``: a run live, in numbers."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rljob.command_errors import one_line_errors

from rljob_operator.local.job_view import look
from rljob_operator.local.run_folder import chosen_run
from rljob_operator.verbs.options import RunArgument
from rljob_operator.view.top import screen


def top(
    run: RunArgument = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as without a terminal.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Watch a run: queue depth and its bound, how long the learner starves and the actors are blocked, lag, speeds, actors.

    Ctrl-C leaves the view; the run goes on.

    Examples:

      rljob top

      rljob top runs/pong-apex-20260101-120000 --once
    """
    with one_line_errors():
        folder, console = chosen_run(run), Console()
        if once or not console.is_terminal:
            console.print(screen(look(folder)))
            return
        try:
            seen = look(folder)
            with Live(screen(seen), console=console, auto_refresh=False, transient=False) as live:
                while True:
                    time.sleep(interval)
                    before, seen = seen, look(folder)
                    live.update(screen(seen, before), refresh=True)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None

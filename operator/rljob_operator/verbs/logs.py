"""``rljob logs``: what the roles of a run have written."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rljob.command_errors import one_line_errors
from rljob.errors import UsageError

from rljob_operator.core.member import Role
from rljob_operator.local.job_view import running_members
from rljob_operator.local.log_files import LogFollower
from rljob_operator.local.run_folder import chosen_run
from rljob_operator.verbs.options import POLL_SECONDS, RunArgument


def logs(
    run: RunArgument = None,
    who: Annotated[
        str | None,
        typer.Argument(
            metavar="ROLE|NAME",
            help="actor, learner, inference, replay, evaluator, or one such as actor-1.",
            show_default="all",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines are written, until Ctrl-C.")] = False,
    tail: Annotated[int, typer.Option("--tail", min=0, help="Last lines of each log.")] = 20,
) -> None:
    """Show the logs of a run's roles. They stay in RUN/logs after the run.

    Examples:

      rljob logs

      rljob logs learner -f

      rljob logs runs/pong-apex-20260101-120000 actor-1 --tail 100
    """
    with one_line_errors():
        if run is not None and who is None and not run.exists() and _is_role(str(run)):
            run, who = None, str(run)
        folder = chosen_run(run)
        followers: dict[str, LogFollower] = {}
        try:
            while True:
                names = _names(folder, who)  # actors may come later
                for name in names:
                    followers.setdefault(name, LogFollower(folder / "logs" / f"{name}.log", tail))
                _show(followers)
                if not follow:
                    return
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _show(followers: dict[str, LogFollower]) -> None:
    width = max(map(len, followers))
    for name, follower in followers.items():
        for line in follower.new_lines():
            typer.echo(f"{name:<{width}}  {line}" if len(followers) > 1 else line)


def _is_role(word: str) -> bool:
    return word.partition("-")[0] in set(Role)


def _names(folder: Path, who: str | None) -> list[str]:
    """Members with a log that ``who`` (a role, a name, or everybody) means. Raises UsageError."""
    known = sorted(path.stem for path in (folder / "logs").glob("*.log"))
    if not known:
        raise UsageError(f"{folder}: no logs yet; nothing has been started")
    chosen = [name for name in known if who in (None, name, name.partition("-")[0])]
    if not chosen:
        running = running_members(folder)
        here = ", ".join(f"{name}{'' if name in running else ' (ended)'}" for name in known)
        raise UsageError(f"{who}: no such role or member in {folder}; there are: {here}")
    return chosen

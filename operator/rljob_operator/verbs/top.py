"""``rljob top``: a job live, in numbers."""

import time
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rljob.api.exit_codes import EXIT_UNAVAILABLE
from rljob.command_errors import one_line_errors
from rljob.errors import CommandRefused

from rljob_operator.verbs.jobs import Job, Place
from rljob_operator.verbs.options import ContextOption, JobArgument, KubeconfigOption, NamespaceOption, jobs_of
from rljob_operator.view.job_view import JobView
from rljob_operator.view.top import screen


def top(
    job: JobArgument = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as without a terminal.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 1.0,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Watch a job: queue depth and its bound, waiting time of learner and actors, lag, speeds, actors.

    Ctrl-C leaves the view; the job continues. On a cluster this uses the API server and needs the right to get pods/proxy;
    without it top shows the job's status.

    Examples:

      rljob top

      rljob top runs/pong-apex-20260101-120000 --once

      rljob top -n team-a pong
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        chosen, console = jobs.chosen(job), Console()
        if once or not console.is_terminal:
            console.print(screen(chosen.look()))
            return
        try:
            seen = chosen.look()
            with Live(screen(seen), console=console, auto_refresh=False, transient=False) as live:
                while True:
                    time.sleep(interval)
                    before, seen = seen, _next_look(chosen, seen)
                    live.update(screen(seen, before), refresh=True)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _next_look(job: Job, before: JobView) -> JobView:
    """The job now; while its server is away, as it was before, marked as such."""
    try:
        return job.look()
    except CommandRefused as problem:
        if problem.exit_code != EXIT_UNAVAILABLE:
            raise
        return replace(before, problem=str(problem))

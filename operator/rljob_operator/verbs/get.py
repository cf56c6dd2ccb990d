"""``rljob get``: jobs in columns, as `kubectl get rljob` shows them; ``rljob top``: one live, in numbers; and logs."""

import enum
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rljob.api.document import dump_document
from rljob.api.exit_codes import EXIT_UNAVAILABLE
from rljob.command_errors import one_line_errors
from rljob.errors import CommandRefused
from rljob.strict_json import dumps

from rljob_operator.verbs.jobs import Job, Place
from rljob_operator.verbs.options import (
    ContextOption,
    JobArgument,
    KubeconfigOption,
    MembersArgument,
    NamespaceOption,
    jobs_of,
)
from rljob_operator.view.job_view import JobView, table
from rljob_operator.view.live import screen


class Form(enum.StrEnum):
    """How objects are printed."""

    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


def get(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|JOB",
            help="The run's folder; on a cluster the job's name.",
            show_default="the newest under runs/, or every job of the namespace",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Every run under runs/, or under RUN.")] = False,
    output: Annotated[
        Form | None, typer.Option("--output", "-o", help="wide: more columns; json, yaml: spec and status.")
    ] = None,
    namespace: NamespaceOption = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="On a cluster: the jobs of all namespaces.")
    ] = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show a job, all runs of an experiment, or all jobs, in columns.

    ACTORS is ready/desired, DEPTH the learner's queue and its bound in batches, RETURN that of the newest games, LAG the age of
    its data in updates, DURATION the working time, AGE the time since the start. A run is Lost if its controller was killed or
    its machine restarted.

    Figures in a list of a cluster's jobs come from their status and are up to half a minute old.

    Examples:

      rljob get

      rljob get --all -o wide

      rljob get runs/pong-apex-20260101-120000 -o json | jq .status.conditions

      rljob get -n team-a
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig, all_namespaces)) as jobs:
        as_objects = output in (Form.JSON, Form.YAML)
        found = jobs.shown(job, everything, figures=not as_objects)
        if as_objects:
            # As the cluster answers or would answer it: what is stored, with its status.
            documents = [
                {**one.document, "status": one.document.get("status") or one.status.document()} for one in found.jobs
            ]
            shown = {"apiVersion": "v1", "kind": "List", "items": documents} if found.is_list else documents[0]
            typer.echo(dumps(shown, 2) if output is Form.JSON else dump_document(shown).rstrip())
            return
        if found.jobs:
            for line in table(found.jobs, wide=output is Form.WIDE, namespaces=found.namespaces):
                typer.echo(line)
        for one in found.jobs:
            if one.problem:
                typer.echo(f"{one.place}: {one.problem}", err=True)


def logs(
    job: JobArgument = None,
    who: MembersArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines are written, until Ctrl-C.")] = False,
    tail: Annotated[int, typer.Option("--tail", min=0, help="Last lines of each log.")] = 20,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show the logs of a job's roles. A run keeps them in RUN/logs; on a cluster they disappear with their pods. --follow also
    shows later pods.

    Examples:

      rljob logs

      rljob logs learner -f

      rljob logs runs/pong-apex-20260101-120000 actor-1 --tail 100

      rljob logs -n team-a pong learner -f
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        if job is not None and who is None and jobs.splits(job):
            job, who = None, job
        try:
            jobs.chosen(job).logs(who, tail=tail, follow=follow, show=_show)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _show(names: Sequence[str], lines: Iterable[tuple[str, str]]) -> None:
    width = max(map(len, names), default=0)
    for name, line in lines:
        typer.echo(f"{name:<{width}}  {line}" if len(names) > 1 else line)


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

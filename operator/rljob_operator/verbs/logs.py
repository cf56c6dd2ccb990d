"""``rljob logs``: what the roles of a job have written."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from rljob.command_errors import one_line_errors

from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import (
    ContextOption,
    JobArgument,
    KubeconfigOption,
    MembersArgument,
    NamespaceOption,
    jobs_of,
)


def logs(
    job: JobArgument = None,
    who: MembersArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines are written, until Ctrl-C.")] = False,
    tail: Annotated[int, typer.Option("--tail", min=0, help="Last lines of each log.")] = 20,
    previous: Annotated[
        bool,
        typer.Option(
            "--previous", "-p", help="On a cluster: of the lives before the present ones, as far as they are kept."
        ),
    ] = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show the logs of a job's roles. Those of a run stay in RUN/logs; on a cluster they go with their pods.

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
            jobs.chosen(job).logs(who, tail=tail, follow=follow, previous=previous, show=_show)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _show(names: Sequence[str], lines: Iterable[tuple[str, str]]) -> None:
    width = max(map(len, names), default=0)
    for name, line in lines:
        typer.echo(f"{name:<{width}}  {line}" if len(names) > 1 else line)

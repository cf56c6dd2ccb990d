"""``rljob events``: what happened to a job, in order."""

import typer
from rljob.command_errors import one_line_errors

from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import ContextOption, JobArgument, KubeconfigOption, NamespaceOption, jobs_of
from rljob_operator.view.events import lines


def events(
    job: JobArgument = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show the events of a cluster's job, its pods and its volume claims, the newest last.

    A cluster keeps them for about an hour. None are recorded of a run on this machine.

    Example:

      rljob events -n team-a pong
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        chosen = jobs.chosen(job)
        found = lines(chosen.events())
        for line in found:
            typer.echo(line)
        if not found:
            typer.echo(f"{chosen.place}: no events; a cluster forgets them after about an hour", err=True)

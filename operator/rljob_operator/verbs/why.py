"""``rljob why``: the reasons for what a job does."""

from __future__ import annotations

import typer
from rljob.command_errors import one_line_errors

from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import ContextOption, JobArgument, KubeconfigOption, NamespaceOption, jobs_of
from rljob_operator.view.reasons import why as reasons


def why(
    job: JobArgument = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Explain a job: the last decision about its actors with the numbers to check it by hand, and what limited it; for one
    that does not run, the conditions and the last failures.

    Examples:

      rljob why

      rljob why -n team-a pong
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        for line in reasons(jobs.chosen(job).look(figures=False)):
            typer.echo(line)

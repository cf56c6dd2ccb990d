"""``rljob stop``: end a job in good order."""

from typing import Annotated

import typer
from rljob.command_errors import one_line_errors

from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import ContextOption, KubeconfigOption, NamespaceOption, TimeoutOption, jobs_of


def stop(
    job: Annotated[
        str,
        typer.Argument(metavar="RUN|JOB", help="The run's folder; on a cluster the job's name.", show_default=False),
    ],
    timeout: TimeoutOption = 180.0,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """End a run as Ctrl-C in its terminal would: drain, checkpoint, stop. It can be resumed.

    The folder of an experiment ends all its runs.

    A job on a cluster is ended in the same order, and stays stopped until `rljob resume`; `kubectl delete rljob` is the end for
    good.

    Examples:

      rljob stop runs/pong-apex-20260101-120000

      rljob stop -n team-a pong
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        jobs.chosen(job, or_experiment=True).stop(typer.echo, timeout)

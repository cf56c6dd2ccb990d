"""What the verbs share: which job is meant, whether it is a run on this machine or one of a cluster, where it is, and how one
waits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from rljob_operator.verbs.jobs import Jobs, Place

JobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN|JOB",
        help="The run's folder; on a cluster the job's name.",
        show_default="the newest under runs/, or the only job of the namespace",
    ),
]
MembersArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ROLE|NAME",
        help="actor, learner, inference, replay, evaluator, or one such as actor-1.",
        show_default="all",
    ),
]

NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NS", help="On a cluster: in this namespace.", show_default=False),
]
ContextOption = Annotated[
    str | None,
    typer.Option(help="On a cluster: by this context of the kubeconfig.", show_default="the current one"),
]
KubeconfigOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="On a cluster: how to log in.", show_default="$KUBECONFIG or ~/.kube/config"),
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Return when it has happened, or say why it can't.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=1, help="Longest wait in seconds.")]


class Meaning:
    """Whether verbs mean a cluster where no place is named: set once, by `kubectl rljob`."""

    cluster = False


@contextmanager
def jobs_of(place: Place) -> Iterator[Jobs]:
    """The jobs of a place, until the verb is done. The client of a cluster is loaded only where it is needed."""
    if not (Meaning.cluster or any(place)):
        from rljob_operator.verbs.local_jobs import LocalJobs

        yield LocalJobs()
        return
    from rljob_operator.verbs.cluster_jobs import ClusterJobs

    with ClusterJobs(place, plugin=Meaning.cluster) as jobs:
        yield jobs

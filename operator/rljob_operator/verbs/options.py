"""The arguments and options that the verbs share: which job is meant, where it is, and how one waits."""

from __future__ import annotations

from typing import Annotated

import typer

JobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN|JOB",
        help="The run's folder; on a cluster the job's name.",
        show_default="the newest under runs/, or the only job of the namespace",
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

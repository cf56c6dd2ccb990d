"""``rljob operator``: what the operator's pod runs; from a laptop it works against a kubeconfig."""

import asyncio
import logging
import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from rljob.errors import UsageError
from rljob.strict_json import dumps

from rljob_operator.polls.reach import Way

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"


class JsonLines(logging.Formatter):
    """A record as one line of JSON, as collectors of logs expect it."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger and message; a traceback as text."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return dumps(line)


def operator(
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Manage only the jobs of this namespace. Repeatable.",
            show_default="all namespaces",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(envvar="RLJOB_IMAGE", help="Default image of jobs.", show_default="that of this release"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="YAML with defaults for jobs; its fields: docs/operator-configuration.md."),
    ] = None,
    kubeconfig: Annotated[str | None, typer.Option(help="How to log in; in a pod its own account.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    lease_namespace: Annotated[
        str, typer.Option(help="Where the Lease of the leader is.", show_default="the operator's own namespace")
    ] = "",
    operator_namespace: Annotated[
        str,
        typer.Option(envvar="RLJOB_OPERATOR_NAMESPACE", help="Namespace that may reach jobs' metrics ports."),
    ] = "rljob-system",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of /metrics, /healthz and /readyz; 0 serves none.")
    ] = 8080,
    workers: Annotated[int, typer.Option(min=1, max=1000, help="Jobs reconciled at the same time.")] = 16,
    reach: Annotated[
        Way,
        typer.Option(
            help="How members are asked: pods, at their addresses; pods-proxy, through the API server, which takes rights on "
            "pods/proxy and no way into the pods' network."
        ),
    ] = Way.PODS,
    json_logs: Annotated[bool, typer.Option("--json-logs/--plain-logs", help="Logs as lines of JSON.")] = True,
) -> None:
    """Manage the RLJobs of a cluster until SIGTERM. Several operators may run at once: one leads, the others wait.

    Options win over --config.

    Exit codes: 0 stopped as asked, 1 something failed, 2 the cluster cannot be reached.

    Example, from a laptop:

      rljob operator --namespace team-a --plain-logs --reach pods-proxy \\
        --image registry.example.com/rljob-worker:0.1.0
    """
    try:
        from rljob_operator.kube.apiserver.access import NoAccess
        from rljob_operator.kube.process.operator import OperatorConfig
        from rljob_operator.kube.process.run import run_operator
    except ImportError as error:
        raise UsageError(f"rljob operator needs the Kubernetes client, which can't be imported: {error}") from None
    from rljob_operator.kube.process.configuration import OperatorConfiguration, read_configuration, settings_of

    _log(json_logs)
    given = read_configuration(config) if config is not None else OperatorConfiguration()
    runs = OperatorConfig(
        settings_of(given, operator_namespace, image),
        namespaces=tuple(namespace) if namespace else None,
        lease_namespace=lease_namespace,
        kubeconfig=kubeconfig,
        context=context,
        port=port,
        workers=workers,
        reach=reach,
    )
    try:
        asyncio.run(run_operator(runs))
    except NoAccess as problem:
        raise UsageError(str(problem)) from None


def _log(as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(LOG_FORMAT, "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # It warns of signals, which are ours here, and logs a traceback at its end, which `kopf_watch` reports in a sentence.
    logging.getLogger("kopf").setLevel(logging.CRITICAL)

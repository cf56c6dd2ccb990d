"""From a configuration to an operator that stands for election, works and ends: its logins, its rights, its signals."""

import asyncio
import logging
import signal
from collections.abc import Sequence
from functools import partial

from rljob_operator.kube.apiserver.access import SERVICE_ACCOUNT, NoAccess, load_access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS
from rljob_operator.kube.process.lease import Elector, LeadershipLost, new_identity
from rljob_operator.kube.process.operator import LEASE_NAME, Operator, OperatorConfig
from rljob_operator.kube.reporting.health import Health
from rljob_operator.kube.reporting.metrics import OperatorMetrics
from rljob_operator.polls.reach import Way

log = logging.getLogger(__name__)


async def run_operator(config: OperatorConfig) -> None:
    """Run until SIGTERM or SIGINT. Where the Lease is lost all that was known is dropped, and this process stands for it again as
    another candidate: to start a new one would cost the most when the machine is so busy that the Lease was lost for that.

    Raises `NoAccess`, `LeadershipLost` where it was to stop meanwhile, and OSError where the port is taken.
    """
    while True:
        access, metrics = await load_access(config.kubeconfig, config.context), OperatorMetrics()
        namespace = config.lease_namespace or _own_namespace() or access.namespace
        elector = Elector(partial(_lease_client, config, metrics), namespace, LEASE_NAME, new_identity())
        client = Client(access, observe=metrics.called, guard=elector.check)
        operator = Operator(config, access, metrics, client)
        try:
            if config.reach is Way.PODS_PROXY:
                await check_rights(client, config.namespaces)
            return await _until_stopped(operator, elector, metrics, config.port)
        except LeadershipLost as lost:
            if operator.stopping.is_set():
                raise
            log.warning("%s; it stands for the lease again", lost)
        finally:
            await client.close()


async def _lease_client(config: OperatorConfig, metrics: OperatorMetrics) -> Client:
    """Made in the thread of the Lease: it shares neither connection nor login."""
    return Client(await load_access(config.kubeconfig, config.context), observe=metrics.called)


async def _until_stopped(operator: Operator, elector: Elector, metrics: OperatorMetrics, port: int) -> None:
    loop = asyncio.get_running_loop()
    health = Health(metrics, ready=lambda: operator.ready and elector.in_touch, look=operator.show, port=port)

    async def stand() -> None:
        await operator.prepare()
        await elector.lead(operator.lead)

    leading = asyncio.ensure_future(stand())

    def stop() -> None:
        operator.stop()
        if not operator.leading:
            leading.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    looking = asyncio.ensure_future(health.run())
    try:
        await asyncio.wait({leading, looking}, return_when=asyncio.FIRST_COMPLETED)
        for task in (leading, looking):
            if task.done() and not task.cancelled():
                task.result()
    finally:
        for task in (leading, looking):
            task.cancel()
        await asyncio.gather(leading, looking, return_exceptions=True)


async def check_rights(client: Client, namespaces: Sequence[str] | None) -> None:
    """Raises `NoAccess` where a right is missing that it takes to ask members through the API server."""
    asked = [(verb, namespace) for namespace in namespaces or (None,) for verb in ("get", "create")]
    has = [await client.may(verb, PODS, namespace, "proxy") for verb, namespace in asked]
    missing = [
        f"{verb} in {where or 'all namespaces'}" for (verb, where), held in zip(asked, has, strict=True) if not held
    ]
    if missing:
        raise NoAccess(
            f"--reach pods-proxy takes rights on pods/proxy that this login lacks: {', '.join(missing)}; grant them, or run "
            "where the pods' addresses are reached"
        )


def _own_namespace() -> str:
    """The namespace of the pod that this process runs in; empty elsewhere."""
    file = SERVICE_ACCOUNT / "namespace"
    return file.read_text().strip() if file.is_file() else ""

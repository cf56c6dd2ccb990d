"""The NetworkPolicy of a job that runs, as this operator is configured: who reads the metrics is not fixed with the job."""

from __future__ import annotations

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import NETWORK_POLICIES
from rljob_operator.kube.job.owned import NameConflict, get_own
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.network import network_policy
from rljob_operator.kube.render.settings import Settings


async def renew_policy(client: Client, owned: Owned, settings: Settings) -> None:
    """Have the job's NetworkPolicy let in whom ``settings`` name, such as this operator itself in its own namespace.

    One that is not there, or is somebody else's, is left to `children.ensure`. Raises whatever `Client` raises.
    """
    if owned.job.spec.network.policy != "Enabled":
        return
    try:
        found = await get_own(client, owned, NETWORK_POLICIES, names.network_policy(owned.name))
    except NameConflict:
        return
    wanted = network_policy(owned, settings)
    if found is not None and found.get("spec") != wanted["spec"]:
        await client.apply(NETWORK_POLICIES, wanted, uid=found["metadata"]["uid"])

"""Which replay shards wait for a volume that is on a node which is gone.

The scheduler's words for a shard that fits nowhere do not tell a lost node from a full one. The claim names the node that was
chosen for its volume, and of that the API server is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rljob.api.conditions import Reason
from rljob.api.timestamps import parse_rfc3339

from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Forbidden, NotFound
from rljob_operator.kube.apiserver.resources import NODES, VOLUME_CLAIMS, Object
from rljob_operator.kube.job.owned import NameConflict, get_own
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.roles import has_own_redis
from rljob_operator.kube.render.settings import Settings

_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""On a claim that waits for its first pod: the node that the scheduler chose, where the volume was then made."""


async def lost_volumes(
    client: Client,
    owned: Owned,
    members: Iterable[Member],
    gone: dict[str, float],
    settings: Settings,
    now_seconds: float,
) -> dict[str, str]:
    """Shard that finds no place -> why its volume counts as lost: its node has been away for `Settings.volume_lost_seconds`.

    ``gone`` is the caller's to keep from one look to the next: shard -> since when its volume's node is known to be away. Where
    nodes may not be read, none is lost.
    """
    longest, waiting = settings.volume_lost_seconds, [member for member in members if _finds_no_place(member)]
    for name in gone.keys() - {member.name for member in waiting}:
        del gone[name]
    if not longest or not waiting or not has_own_redis(owned.job):
        return {}
    found: dict[str, str] = {}
    for member in waiting:
        node = await _node_of_volume(client, owned, member.name)
        since = await _away_since(client, node, now_seconds) if node else None
        if since is None:
            gone.pop(member.name, None)
        elif now_seconds - gone.setdefault(member.name, since) >= longest:
            found[member.name] = f"node {node} of its volume is gone for {now_seconds - gone[member.name]:.0f} s"
    return found


def _finds_no_place(member: Member) -> bool:
    return member.role is Role.REPLAY and member.phase is Phase.STARTING and member.waiting is Reason.UNSCHEDULABLE


async def _node_of_volume(client: Client, owned: Owned, member: str) -> str:
    """Empty where the claim names none, or there is none of the job's own."""
    try:
        claim = await get_own(client, owned, VOLUME_CLAIMS, owned.claim(member))
    except NameConflict:
        return ""
    return (claim["metadata"].get("annotations") or {}).get(_SELECTED_NODE, "") if claim is not None else ""


async def _away_since(client: Client, node: str, now_seconds: float) -> float | None:
    """Since when the node is not heard of; now for one that is deleted, None for one that is there, or may not be asked for."""
    try:
        found = await client.get(NODES, None, node)
    except NotFound:
        return now_seconds
    except Forbidden:
        return None
    ready = _ready(found)
    return None if ready.get("status") == "True" else parse_rfc3339(ready["lastTransitionTime"])


def _ready(node: Object) -> Object:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "Ready"), {"status": "True"})

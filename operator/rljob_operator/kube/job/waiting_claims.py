"""Which volume claim a member waits for, why that has no volume, and what to do.

The scheduler says of such a pod only that a claim of it is not bound. The claim itself knows more, and its StorageClass the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rljob.api.conditions import Reason

from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import Observation
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Forbidden, NotFound
from rljob_operator.kube.apiserver.resources import STORAGE_CLASSES, VOLUME_CLAIMS, Object
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import pod_volumes

_ABOUT_A_CLAIM: Final = re.compile(r"persistent ?volume", re.IGNORECASE)
"""Words of the scheduler, where a claim is what keeps a pod from a node."""
_HOLDERS: Final = (Role.REPLAY, Role.LEARNER)
_IS_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"


async def with_claims(client: Client, owned: Owned, observed: Observation, settings: Settings) -> Observation:
    """What is observed, where learner or shards wait for a claim with the words about that before those of the scheduler."""
    if not any(map(_waits, observed.members)):
        return observed
    found = [await _told(client, owned, each, settings) if _waits(each) else each for each in observed.members]
    return replace(observed, members=tuple(found))


def _waits(member: Member) -> bool:
    unscheduled = member.phase is Phase.STARTING and member.waiting is Reason.UNSCHEDULABLE
    return member.role in _HOLDERS and unscheduled and bool(_ABOUT_A_CLAIM.search(member.waiting_message))


async def _told(client: Client, owned: Owned, member: Member, settings: Settings) -> Member:
    words = [await _why(client, owned, name) for name in _claims(owned, member.name, settings)]
    said = "; ".join([*filter(None, words), member.waiting_message])
    return replace(member, waiting_message=said)


def _claims(owned: Owned, member: str, settings: Settings) -> Sequence[str]:
    """Names of the claims that the member's pod mounts, its user's among them."""
    found = (each.get("persistentVolumeClaim") for each in pod_volumes(owned, member, settings))
    return [str(each["claimName"]) for each in found if each]


async def _why(client: Client, owned: Owned, name: str) -> str:
    """Why a claim has no volume; empty where it has one."""
    namespace = owned.job.metadata.namespace
    try:
        claim = await client.get(VOLUME_CLAIMS, namespace, name)
    except NotFound:
        return f"claim {name} does not exist: create it in namespace {namespace}"
    if (claim.get("status") or {}).get("phase") == "Bound":
        return ""
    if claim["metadata"].get("deletionTimestamp"):
        return f"claim {name} is being deleted, and waits for a pod that still uses it"
    chosen = claim["spec"].get("storageClassName")
    if chosen is None:
        return (
            f"claim {name} names no StorageClass, and the cluster has no default one: mark one as the default "
            f"(kubectl annotate storageclass NAME {_IS_DEFAULT}=true), or {_name_one(claim)}"
        )
    if not chosen:
        return f"claim {name} wants no StorageClass (an empty name): create a PersistentVolume that fits it"
    return await _why_not_by(client, claim, chosen)


async def _why_not_by(client: Client, claim: Object, name: str) -> str:
    claimed = claim["metadata"]["name"]
    try:
        found = await client.get(STORAGE_CLASSES, None, name)
    except NotFound:
        return f"claim {claimed} names StorageClass {name}, which does not exist: create it, or {_name_one(claim)}"
    except Forbidden:
        return f"claim {claimed} has no volume of StorageClass {name} yet: kubectl describe pvc {claimed}"
    if found.get("volumeBindingMode") == "WaitForFirstConsumer":
        return ""  # it is made when the pod has a node, which is what the scheduler's words are about
    provisioner = found.get("provisioner", "")
    return (
        f"claim {claimed}: {provisioner} of StorageClass {name} has made no volume yet: kubectl describe pvc {claimed}"
    )


def _name_one(claim: Object) -> str:
    """Where the claim gets its StorageClass from: a claim cannot change it."""
    owners = claim["metadata"].get("ownerReferences") or ()
    if not any(each.get("kind") == "RLJob" for each in owners):
        return "make the claim anew with one that does"
    if claim["metadata"]["name"].endswith("-learner"):
        return "name one in checkpointClaim.storageClass of the operator's configuration and make the job anew"
    return "name one in spec.replay.redis.persistence.storageClassName of a new job"

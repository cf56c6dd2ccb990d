"""Which volume a member waits for: a Secret or ConfigMap of its user's that is not there, or a claim, why that has no volume or
where the volume is, and what to do. It only makes messages: nothing is done about a claim, since it can't be known whether its
data are lost.

The scheduler says of such a pod only that a claim of it is not bound, or that a volume is elsewhere, and not even that where
every node has a taint, as a lost one has; while it waits for a volume that is to be made, it says nothing. The claim itself knows
more, and its StorageClass and its volume the rest.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from rljob.api.timestamps import parse_rfc3339

from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import Observation
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Forbidden, Invalid, NotFound
from rljob_operator.kube.apiserver.resources import (
    CONFIG_MAPS,
    NODES,
    SECRETS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    Object,
    Resource,
)
from rljob_operator.kube.render.children import checkpoint_claim_of
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.roles import users_pod_spec
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import makes_checkpoint_claim, pod_volumes

log = logging.getLogger(__name__)

_ABOUT_A_CLAIM: Final = re.compile(r"persistent ?volume|volume node affinity", re.IGNORECASE)
"""Parts of the scheduler's message, where a claim is what keeps a pod from a node."""
_HOLDERS: Final = (Role.REPLAY, Role.LEARNER)
HELD_UP_SECONDS: Final = 30.0
"""A pod that has had a node for so long and does not come up may wait for its volume to come there."""
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""On a claim that waited for its first pod: the node that the scheduler chose then."""
_HOSTNAME: Final = "kubernetes.io/hostname"
_IS_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"


async def with_claims(
    client: Client, owned: Owned, observed: Observation, settings: Settings, now_seconds: float
) -> Observation:
    """What is observed, where learner or shards wait for a claim with a message about that before the scheduler's."""
    found, missing = [], dict[Role, str]()
    for member in observed.members:
        if _waits(member):
            member = await _told(client, owned, member, settings)
        elif is_held_up(member, now_seconds) and not member.waiting_message:
            if member.role not in missing:  # five hundred actors have the same volumes
                missing[member.role] = await _missing(client, owned, member, settings)
            words = missing[member.role] or await _attached(client, owned, member, settings)
            member = replace(member, waiting_message=words)
        found.append(member)
    return replace(observed, members=tuple(found))


def _waits(member: Member) -> bool:
    return (
        member.role in _HOLDERS
        and member.phase is Phase.STARTING
        and not member.placed
        and bool(member.waiting_message)
    )


def is_held_up(member: Member, now_seconds: float) -> bool:
    """Whether a pod has had a node for long, can have its image, and does not come up."""
    placed = member.phase is Phase.STARTING and bool(member.node_name) and member.waiting is None
    return placed and now_seconds - member.since_seconds >= HELD_UP_SECONDS


async def _missing(client: Client, owned: Owned, member: Member, settings: Settings) -> str:
    """The first Secret or ConfigMap of the pod's volumes that does not exist; its kubelet tells that in an event alone."""
    namespace, volumes = owned.job.metadata.namespace, _volumes(owned, member.name, settings)
    sources = [each for volume in volumes for each in (volume, *(volume.get("projected") or {}).get("sources", ()))]
    for kind, resource in (("secret", SECRETS), ("configMap", CONFIG_MAPS)):
        for source in [each[kind] for each in sources if each.get(kind) and not each[kind].get("optional")]:
            name = source.get("secretName") or source.get("name")
            if await _found(client, resource, namespace, name, missing={}) == {}:
                return f"{resource.kind} {name} of its volumes does not exist: create it in namespace {namespace}"
    return ""


async def _attached(client: Client, owned: Owned, member: Member, settings: Settings) -> str:
    """How long the volume of a pod may take to come to the pod's node, where the claim was there before the pod."""
    for name in _claims(owned, member.name, settings) if member.role in _HOLDERS else ():
        claim = await _found(client, VOLUME_CLAIMS, owned.job.metadata.namespace, name)
        if claim is None or (claim.get("status") or {}).get("phase") != "Bound":
            continue
        if parse_rfc3339(claim["metadata"]["creationTimestamp"]) < member.since_seconds - HELD_UP_SECONDS:
            return (
                f"the volume of claim {name} may still be attached to the node where it was: Kubernetes takes it from a lost "
                "node after about 6 minutes, or at once by kubectl taint node NODE "
                "node.kubernetes.io/out-of-service=gone:NoExecute"
            )
    return ""


async def _told(client: Client, owned: Owned, member: Member, settings: Settings) -> Member:
    why = _why if member.waiting is None or _ABOUT_A_CLAIM.search(member.waiting_message) else _why_away
    words = [await why(client, owned, name) for name in _claims(owned, member.name, settings)]
    return replace(member, waiting_message="; ".join([*filter(None, words), member.waiting_message]))


def _claims(owned: Owned, member: str, settings: Settings) -> Sequence[str]:
    """Names of the claims that the member's pod mounts."""
    found = (each.get("persistentVolumeClaim") for each in _volumes(owned, member, settings))
    return [str(each["claimName"]) for each in found if each]


def _volumes(owned: Owned, member: str, settings: Settings) -> list[dict[str, Any]]:
    """The member's volumes: the operator's, and those of podTemplate."""
    given = users_pod_spec(owned.job, Role.of(member)).get("volumes") or ()
    return [*pod_volumes(owned, member, settings), *given]


async def _why(client: Client, owned: Owned, name: str) -> str:
    """Why a claim has no volume, or where its volume is; empty where any node can have it."""
    namespace = owned.job.metadata.namespace
    try:
        claim = await client.get(VOLUME_CLAIMS, namespace, name)
    except NotFound:
        return f"claim {name} does not exist: create it in namespace {namespace}"
    if (claim.get("status") or {}).get("phase") == "Bound":
        return await _where(client, claim)
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


async def _why_away(client: Client, owned: Owned, name: str) -> str:
    """The node of a member's volume, where that one is away; for members that no node takes for other reasons, such as taints."""
    claim = await _found(client, VOLUME_CLAIMS, owned.job.metadata.namespace, name)
    return await _where(client, claim, if_away=True) if claim is not None and claim["spec"].get("volumeName") else ""


async def _where(client: Client, claim: Object, *, if_away: bool = False) -> str:
    """Which node a volume can't leave. Where volumes may not be read, the node that was chosen for it is all that is known, and
    it is named only where the scheduler says that the volume keeps the pod from others."""
    about, namespace = claim["metadata"], claim["metadata"]["namespace"]
    volume = await _found(client, VOLUMES, None, str(claim["spec"].get("volumeName", "")))
    node = _only_node(volume) if volume is not None else (about.get("annotations") or {}).get(_SELECTED_NODE, "")
    if not node:
        return ""
    bound = "is on node" if volume is not None else "was made on node"
    found = await _found(client, NODES, None, node, missing={"status": {}})
    state = _state(found) if found is not None else ""
    if if_away and (volume is None or not state):
        return ""
    return (
        f"the volume of claim {about['name']} {bound} {node}{state}, and is waited for, however long; to go on without what it "
        f"holds: kubectl delete pvc -n {namespace} {about['name']}, and with --force any pod of it left there"
    )


def _only_node(volume: Object) -> str:
    """The node that the volume can't leave; empty where several can have it."""
    required = ((volume["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    asked = [each for term in required for each in term.get("matchExpressions") or ()]
    named = [value for each in asked if each.get("key") == _HOSTNAME for value in each.get("values") or ()]
    return str(named[0]) if len(named) == 1 else ""


def _state(node: Object) -> str:
    if not node["status"]:
        return ", which does not exist"
    ready: Object = next((each for each in node["status"].get("conditions") or () if each.get("type") == "Ready"), {})
    if ready.get("status", "True") != "True":
        return ", of which nothing is heard"
    return ", which is closed (kubectl uncordon opens it)" if (node.get("spec") or {}).get("unschedulable") else ""


async def _found(
    client: Client, resource: Resource, namespace: str | None, name: str, missing: Object | None = None
) -> Object | None:
    """The object; ``missing`` where there is none, None where it may not be read."""
    try:
        return await client.get(resource, namespace, name)
    except NotFound:
        return missing
    except Forbidden:
        return None


async def _why_not_by(client: Client, claim: Object, name: str) -> str:
    claimed = claim["metadata"]["name"]
    try:
        found = await client.get(STORAGE_CLASSES, None, name)
    except NotFound:
        return f"claim {claimed} names StorageClass {name}, which does not exist: create it, or {_name_one(claim)}"
    except Forbidden:
        return f"claim {claimed} has no volume of StorageClass {name} yet: kubectl describe pvc {claimed}"
    if found.get("volumeBindingMode") == "WaitForFirstConsumer" and _SELECTED_NODE not in claim["metadata"].get(
        "annotations", {}
    ):
        return ""  # it is made once a node was chosen, which is what the scheduler's message is about
    provisioner = found.get("provisioner", "")
    return (
        f"claim {claimed}: {provisioner} of StorageClass {name} has made no volume yet: kubectl describe pvc {claimed}"
    )


def _name_one(claim: Object) -> str:
    """Where the claim gets its StorageClass from: a claim cannot change it."""
    if not any(each.get("kind") == "RLJob" for each in claim["metadata"].get("ownerReferences") or ()):
        return "make the claim anew with one that does"
    if claim["metadata"]["name"].endswith("-learner"):
        return "name one in checkpointClaim.storageClass of the operator's configuration and make the job anew"
    return "name one in spec.replay.redis.persistence.storageClassName of a new job"


async def settings_of_start(client: Client, owned: Owned, settings: Settings) -> Settings:
    """``settings``, without a claim for checkpoints where it would stay without a volume. A StorageClass that the operator's
    configuration names is taken as it stands."""
    if settings.checkpoint_class or not makes_checkpoint_claim(owned.job, settings):
        return settings
    document = checkpoint_claim_of(owned, settings)
    about = {name: value for name, value in document["metadata"].items() if name != "name"}
    tried = {**document, "metadata": {**about, "generateName": "rljob-"}}
    try:
        stored = await client.create(VOLUME_CLAIMS, tried, dry_run=True)
    except (Forbidden, Invalid) as refusal:
        log.warning(
            "%s: checkpoints end with the learner's pod, since a claim for them is refused: %s", owned.name, refusal
        )
        return replace(settings, checkpoint_size="")
    return settings if stored["spec"].get("storageClassName") else replace(settings, checkpoint_size="")

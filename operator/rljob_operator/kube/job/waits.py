"""What a member waits for, and what to do: a Secret or ConfigMap of its user's that does not exist; a claim that is missing or
has no volume, or whose volume is elsewhere; or another job that waits for this one, since each holds nodes' room that the rest of
the other needs. It only makes messages: nothing is done about a claim, since it can't be known whether its data are lost.

The scheduler says of such a pod only that a claim of it is not bound, or that a volume is elsewhere, and not even that where
every node has a taint, as a lost one has; while it waits for a volume that is to be made, it says nothing. What is not said here
`kubectl describe` tells.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from rljob.api.conditions import Reason

from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import Observation
from rljob_operator.core.rules.failures import CORE
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Forbidden, Invalid, NotFound
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, SECRETS, VOLUME_CLAIMS, VOLUMES, Object
from rljob_operator.kube.job.members import Pod, members
from rljob_operator.kube.render.children import checkpoint_claim_of
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.roles import users_pod_spec
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import makes_checkpoint_claim, pod_volumes
from rljob_operator.kube.watch.kept import NodeCache

log = logging.getLogger(__name__)

_ABOUT_A_CLAIM: Final = re.compile(r"persistent ?volume|volume node affinity", re.IGNORECASE)
"""Parts of the scheduler's message, where a claim is what keeps a pod from a node."""
_HOLDERS: Final = (Role.REPLAY, Role.LEARNER)
GIVEN_SECONDS: Final = 60.0
"""For so long after the dry run of one job's claim for checkpoints the others of its namespace need none."""
HELD_UP_SECONDS: Final = 30.0
"""What waits for its volumes for so long, or has a node and does not come up, may lack something that its user has to give."""
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""On a claim that waited for its first pod: the node that the scheduler chose then."""
_HOSTNAME: Final = "kubernetes.io/hostname"
_IS_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"


async def with_claims(
    client: Client, owned: Owned, observed: Observation, settings: Settings, nodes: NodeCache, now_seconds: float
) -> Observation:
    """What is observed, where learner or shards wait for a claim with a message about that before the scheduler's, and where a
    pod does not come up for want of a Secret or ConfigMap with one about that."""
    found, missing = [], dict[Role, str]()
    for member in observed.members:
        if _waits(member, now_seconds):
            away_only = member.waiting is not None and not _ABOUT_A_CLAIM.search(member.waiting_message)
            names = _claims(owned, member.name, settings)
            words = [await _why(client, owned.job.metadata.namespace, name, nodes, away_only) for name in names]
            member = replace(member, waiting_message="; ".join([*filter(None, words), member.waiting_message]))
        elif is_held_up(member, now_seconds) and not member.waiting_message:
            if member.role not in missing:  # five hundred actors have the same volumes
                missing[member.role] = await _missing(client, owned, member.name, settings)
            member = replace(member, waiting_message=missing[member.role])
        found.append(member)
    return replace(observed, members=tuple(found))


def _waits(member: Member, now_seconds: float) -> bool:
    """For longer than a volume takes to be made: a claim that is about to be bound is not asked for at each turn."""
    starts = member.role in _HOLDERS and member.phase is Phase.STARTING and not member.placed
    return starts and bool(member.waiting_message) and now_seconds - member.since_seconds >= HELD_UP_SECONDS


def is_held_up(member: Member, now_seconds: float) -> bool:
    """Whether a pod has had a node for long, can have its image, and does not come up."""
    placed = member.phase is Phase.STARTING and bool(member.node_name) and member.waiting is None
    return placed and now_seconds - member.since_seconds >= HELD_UP_SECONDS


async def _missing(client: Client, owned: Owned, member: str, settings: Settings) -> str:
    """The first Secret or ConfigMap of the pod's volumes that does not exist; its kubelet tells that in an event alone."""
    volumes, namespace = _volumes(owned, member, settings), owned.job.metadata.namespace
    sources = [each for volume in volumes for each in (volume, *(volume.get("projected") or {}).get("sources", ()))]
    for kind, resource in (("secret", SECRETS), ("configMap", CONFIG_MAPS)):
        for source in [each[kind] for each in sources if each.get(kind) and not each[kind].get("optional")]:
            name = source.get("secretName") or source.get("name")
            try:
                await client.get(resource, namespace, name)
            except Forbidden:
                continue
            except NotFound:
                return f"{resource.kind} {name} of its volumes does not exist: create it in namespace {namespace}"
    return ""


def _claims(owned: Owned, member: str, settings: Settings) -> Sequence[str]:
    """Names of the claims that the member's pod mounts."""
    found = (each.get("persistentVolumeClaim") for each in _volumes(owned, member, settings))
    return [str(each["claimName"]) for each in found if each]


def _volumes(owned: Owned, member: str, settings: Settings) -> list[dict[str, Any]]:
    """The member's volumes: the operator's, and those of podTemplate."""
    given = users_pod_spec(owned.job, Role.of(member)).get("volumes") or ()
    return [*pod_volumes(owned, member, settings), *given]


async def _why(client: Client, namespace: str, name: str, nodes: NodeCache, away_only: bool) -> str:
    """Why a claim has no volume, or where its volume is; empty where any node can have it. ``away_only``: no node takes the
    member for another reason, such as taints, so that the volume matters only where its node is away."""
    try:
        claim = await client.get(VOLUME_CLAIMS, namespace, name)
    except NotFound:
        return "" if away_only else f"claim {name} does not exist: create it in namespace {namespace}"
    if (claim.get("status") or {}).get("phase") == "Bound":
        return await _where(client, claim, nodes, away_only)
    if away_only:
        return ""
    if (chosen := claim["spec"].get("storageClassName")) is None:
        return (
            f"claim {name} names no StorageClass, and the cluster has no default one: mark one as the default "
            f"(kubectl annotate storageclass NAME {_IS_DEFAULT}=true), or make the claim anew with one"
        )
    by = f"of StorageClass {chosen}" if chosen else "(and wants one made by hand: its StorageClass is empty)"
    return f"claim {name} has no volume {by}: kubectl describe pvc -n {namespace} {name} says why"


async def _where(client: Client, claim: Object, nodes: NodeCache, away_only: bool) -> str:
    """Which node a volume can't leave. Where volumes may not be read, the node that was chosen for it is all that is known, and
    it is named only where the scheduler says that the volume keeps the pod from others."""
    about, bound = claim["metadata"], "is on node"
    try:
        node = _only_node(await client.get(VOLUMES, None, str(claim["spec"].get("volumeName", ""))))
    except (NotFound, Forbidden):
        node, bound = (about.get("annotations") or {}).get(_SELECTED_NODE, ""), "was made on node"
    away = nodes.lost(node)
    if not node or (away_only and not away):
        return ""
    return (
        f"the volume of claim {about['name']} {bound} {node}{', of which nothing is heard' if away else ''}, and is waited for, "
        f"however long; to go on without what it holds: kubectl delete pvc -n {about['namespace']} {about['name']}, and with "
        "--force any pod of it left there"
    )


def _only_node(volume: Object) -> str:
    """The node that the volume can't leave; empty where several can have it."""
    required = ((volume["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    asked = [each for term in required for each in term.get("matchExpressions") or ()]
    named = [value for each in asked if each.get("key") == _HOSTNAME for value in each.get("values") or ()]
    return str(named[0]) if len(named) == 1 else ""


async def settings_of_start(
    client: Client, owned: Owned, settings: Settings, given_until: dict[str, float], now: float
) -> Settings:
    """``settings``, without a claim for checkpoints where it would stay without a volume. A StorageClass that the operator's
    configuration names is taken as it stands. ``given_until``: until when each namespace counts as one in which such claims,
    which all jobs have alike, get volumes; by a clock that only goes forward."""
    namespace = owned.job.metadata.namespace
    if (
        settings.checkpoint_class
        or now < given_until.get(namespace, now)
        or not makes_checkpoint_claim(owned.job, settings)
    ):
        return settings
    document = checkpoint_claim_of(owned, settings)
    about = {name: value for name, value in document["metadata"].items() if name != "name"}
    tried = {**document, "metadata": {**about, "generateName": "rljob-"}}
    try:
        if (await client.create(VOLUME_CLAIMS, tried, dry_run=True))["spec"].get("storageClassName"):
            given_until[namespace] = now + GIVEN_SECONDS
            return settings
    except (Forbidden, Invalid) as refusal:
        log.warning(
            "%s: checkpoints end with the learner's pod, since a claim for them is refused: %s", owned.name, refusal
        )
    return replace(settings, checkpoint_size="")


def with_rivals(observed: Observation, others: Iterable[tuple[str, Sequence[Pod]]], now_seconds: float) -> Observation:
    """What is observed, where a member finds no node with the other jobs of the namespace, name and pods, that wait so, too."""
    if not _waits_with_a_part(observed.members):
        return observed
    rivals = sorted(name for name, pods in others if _waits_with_a_part(members(pods, now_seconds)))
    if not rivals:
        return observed
    said = f"{', '.join(rivals)} of this namespace waits for nodes, too, while some of its pods have one: suspend all but one"
    told = [
        replace(member, waiting_message=f"{said}; {member.waiting_message}")
        if member.waiting is Reason.UNSCHEDULABLE
        else member
        for member in observed.members
    ]
    return replace(observed, members=tuple(told))


def _waits_with_a_part(found: Sequence[Member]) -> bool:
    """Whether a pod that learning needs finds no node while another of the same job has one."""
    waits = any(member.waiting is Reason.UNSCHEDULABLE and member.role in CORE for member in found)
    return waits and any(member.alive and member.placed for member in found)

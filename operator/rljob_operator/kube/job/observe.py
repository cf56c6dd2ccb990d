"""What is known of a job beside its pods, gathered for one reconciliation: nodes, answers, checkpoints, what members wait for.

A member may wait for a Secret or ConfigMap of its user's that does not exist; a claim that is missing or has no volume, or whose
volume is elsewhere; or another job that waits for this one, since each holds nodes' room that the rest of the other needs. That
only makes messages: nothing is done about a claim, since it can't be known whether its data are lost.

The scheduler says of such a pod only that a claim of it is not bound, or that a volume is elsewhere, and not even that where
every node has a taint, as a lost one has; while it waits for a volume that is to be made, it says nothing. What is not said here
`kubectl describe` tells.
"""

import logging
import re
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from rljob.api.conditions import ConditionType, Reason
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob.api.status_model import parse_rfc3339

from rljob_operator.core.member import Member, Phase, Role, leader
from rljob_operator.core.observed import CheckpointFacts, CheckpointState, Observation, checkpoint_facts
from rljob_operator.core.rules.failures import CORE
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Forbidden, Invalid, NotFound
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, SECRETS, VOLUME_CLAIMS, VOLUMES, Object
from rljob_operator.kube.job.members import UNSEEN, Pod, current, members, parsed, placed_since
from rljob_operator.kube.render.children import checkpoint_claim_of
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.roles import users_pod_spec
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import makes_checkpoint_claim, pod_volumes
from rljob_operator.kube.watch.kept import NodeCache
from rljob_operator.polls.poll import Silence

log = logging.getLogger(__name__)


def seen(member: Member, now_seconds: float, node_lost: bool, silence: Silence | None) -> Member:
    """The member with what its node and its own answers say of it."""
    if silence is not None and member.phase is Phase.READY:
        member = replace(
            member,
            silent_seconds=max(0.0, now_seconds - max(silence.since, member.ready_seconds or 0.0)),
            silent_because=silence.because,
        )
    return replace(member, node_lost=True) if node_lost and member.alive else member


def unseen_end(status: RLJobStatus, members: Sequence[Member], now_seconds: float) -> list[Member]:
    """The learner that the status names and whose pod is gone: it went while no operator ran, and why is unknown. While all
    members are made to leave, that is what was wanted."""
    memory, name = status.controller, status.learner.pod_name
    leaves = memory.suspension is not None or memory.outcome is not None
    if not name or leaves or any(member.role is Role.LEARNER for member in members):
        return []
    return [
        Member(
            "learner", Role.LEARNER, Phase.EXITED, now_seconds, incarnation=name, pod_name=name, disrupted=UNSEEN,
            last_words="its end was not seen, and nothing is left of its pod", deleted=True,
        )
    ]  # fmt: skip


def recommendation(status: RLJobStatus) -> int | None:
    """The number of actors that the law recommends; None where the job does not run, or is not to be asked about."""
    active = status.condition(ConditionType.SCALING_ACTIVE)
    if active is None or active.reason == Reason.SCALING_DISABLED:
        return None
    return status.autoscaling.recommended_replicas


def checkpoints(
    status: RLJobStatus,
    said: LearnerStatus | None,
    pods: Sequence[Pod],
    learner: Member | None,
    where: str,
    *,
    going: bool,
) -> tuple[CheckpointFacts, str]:
    """(the newest checkpoint, where they outlive the learner's pod: empty where they end with it). ``going``: the claim that
    they are on is being deleted; it is there for as long as the learner's pod uses it."""
    newest, told = newest_checkpoint(status, said, pods), status.condition(ConditionType.CHECKPOINT_VALID)
    if going and learner is not None and learner.alive:
        goes = "which is being deleted, and goes with the learner's pod: rljob export saves what was learned before"
        return replace(newest, state=CheckpointState.GONE, message=f"{where}, {goes}"), ""
    if (
        newest.usable
        and (learner is not None and learner.phase is Phase.READY)
        and (said is not None and said.taken_seconds > (learner.ready_seconds or 0.0))  # it, and none before it
        and (said.checkpoint is not None and said.checkpoint.state == "Missing")
    ):
        return _lost(newest), where
    if not where or (told is not None and told.reason == Reason.GONE):
        newest = checkpoint_in_its_pod(newest, learner, pods)
    return newest, where


def _lost(newest: CheckpointFacts) -> CheckpointFacts:
    return CheckpointFacts(
        CheckpointState.GONE,
        message=f"the checkpoint of update {newest.step:,} is gone, with the learner's pod or its volume: training begins at "
        f"update 0, and {newest.step:,} updates are lost",
    )


def checkpoint_in_its_pod(newest: CheckpointFacts, learner: Member | None, pods: Sequence[Pod]) -> CheckpointFacts:
    """The newest checkpoint where those of former pods are lost: gone, unless the present one has written it."""
    pod = leader(current(pods))
    if not newest.usable or (
        pod is not None
        and learner is not None
        and learner.alive
        and newest.time_seconds >= parse_rfc3339(pod["metadata"]["creationTimestamp"])
    ):
        return newest
    return _lost(newest)


def newest_checkpoint(status: RLJobStatus, said: LearnerStatus | None, pods: Sequence[Pod]) -> CheckpointFacts:
    """The newest checkpoint: as a learner that has ended reported at last, or as the one that is up reports, or as is remembered.

    What a learner reported while it was up is older than its last words, which stay remembered when its pod is gone.
    """
    ended = leader(current(pods))
    if ended is not None:
        last = checkpoint_facts(LearnerStatus.lenient(parsed(ended)).checkpoint)
        if last.usable or last.state is CheckpointState.STORAGE_ERROR:
            return last
    known, answered = status.checkpoint, checkpoint_facts(said.checkpoint if said is not None else None)
    if known is None or answered.state is CheckpointState.STORAGE_ERROR:
        return answered
    # A status has whole seconds. The clocks of two learners may differ; a request that came after what is remembered does not.
    moment = known.time or 0.0
    if answered.usable and (answered.time_seconds > moment - 1.0 or answered.requested_seconds > moment):
        return answered
    return CheckpointFacts(CheckpointState.VERIFIED, known.step, known.time or 0.0, known.uri, known.digest)


_ABOUT_A_CLAIM: Final = re.compile(r"persistent ?volume|volume node affinity", re.IGNORECASE)
"""Parts of the scheduler's message, where a claim is what keeps a pod from a node."""
_HOLDERS: Final = (Role.REPLAY, Role.LEARNER)
GIVEN_SECONDS: Final = 60.0
"""For so long after the dry run of one job's claim for checkpoints the others of its namespace need none."""
HELD_UP_SECONDS: Final = 30.0
"""What waits for its volumes for so long, or has had a node for so long and does not come up, may lack something that its user
has to give."""


def held_up(found: Iterable[Member], pods: Iterable[Pod], now_seconds: float) -> list[str]:
    """Members whose pod has had a node for long, can have its image, and does not come up. The time in which a scheduler was busy
    does not count: while a thousand jobs start, it is most of all."""
    of = current(pods)
    placed = [each for each in found if each.phase is Phase.STARTING and each.node_name and each.waiting is None]
    return [each.name for each in placed if now_seconds - placed_since(of[each.name]) >= HELD_UP_SECONDS]


@dataclass(frozen=True, slots=True)
class Waits:
    """What members of one job wait for. ``claim``: what is kept of a claim (`ChildWatch.claim`)."""

    client: Client
    owned: Owned
    settings: Settings
    nodes: NodeCache
    claim: Callable[[str, str], Object | None]

    async def told(self, observed: Observation, slow: Container[str], now_seconds: float) -> Observation:
        """What is observed, where learner or shards wait for a claim with a message about that before the scheduler's, and where
        a pod that is ``slow`` to come up lacks a Secret or ConfigMap with one about that."""
        found, missing = [], dict[Role, str]()
        for member in observed.members:
            if _waits(member, now_seconds):
                away_only = member.waiting is not None and not _ABOUT_A_CLAIM.search(member.waiting_message)
                words = [await self._why(name, away_only) for name in self._claims(member.name)]
                member = replace(member, waiting_message="; ".join([*filter(None, words), member.waiting_message]))
            elif member.name in slow and not member.waiting_message:
                if member.role not in missing:  # five hundred actors have the same volumes
                    missing[member.role] = await self._missing(member.name)
                member = replace(member, waiting_message=missing[member.role])
            found.append(member)
        return replace(observed, members=tuple(found))

    async def _missing(self, member: str) -> str:
        """The first Secret or ConfigMap of the pod's volumes that does not exist; its kubelet tells that in an event alone."""
        volumes, namespace = self._volumes(member), self.owned.job.metadata.namespace
        sources = [each for volume in volumes for each in (volume, *(volume.get("projected") or {}).get("sources", ()))]
        for kind, resource in (("secret", SECRETS), ("configMap", CONFIG_MAPS)):
            for source in [each[kind] for each in sources if each.get(kind) and not each[kind].get("optional")]:
                name = source.get("secretName") or source.get("name")
                try:
                    await self.client.get(resource, namespace, name)
                except Forbidden:
                    continue
                except NotFound:
                    return f"{resource.kind} {name} of its volumes does not exist: create it in namespace {namespace}"
        return ""

    def _claims(self, member: str) -> list[str]:
        """Names of the claims that the member's pod mounts."""
        found = (each.get("persistentVolumeClaim") for each in self._volumes(member))
        return [str(each["claimName"]) for each in found if each]

    def _volumes(self, member: str) -> list[dict[str, Any]]:
        """The member's volumes: the operator's, and those of podTemplate."""
        given = users_pod_spec(self.owned.job, Role.of(member)).get("volumes") or ()
        return [*pod_volumes(self.owned, member, self.settings), *given]

    async def _why(self, name: str, away_only: bool) -> str:
        """Why a claim has no volume, or where its volume is; empty where any node can have it. ``away_only``: no node takes the
        member for another reason, such as taints, so that the volume matters only where its node is away."""
        namespace = self.owned.job.metadata.namespace
        claim = self.claim(namespace, name)
        if claim is not None and claim["bound"]:
            return await self._where(name, claim, away_only)
        if away_only:
            return ""
        if claim is None:
            with suppress(NotFound):  # a watch may lag behind
                await self.client.get(VOLUME_CLAIMS, namespace, name)
                return ""
            return f"claim {name} does not exist: create it in namespace {namespace}"
        if (chosen := claim["class"]) is None:
            return (
                f"claim {name} names no StorageClass, and the cluster has no default one: mark one as the default (kubectl "
                "annotate storageclass NAME storageclass.kubernetes.io/is-default-class=true), or make the claim anew with one"
            )
        by = f"of StorageClass {chosen}" if chosen else "(and wants one made by hand: its StorageClass is empty)"
        return f"claim {name} has no volume {by}: kubectl describe pvc -n {namespace} {name} says why"

    async def _where(self, name: str, claim: Object, away_only: bool) -> str:
        """Which node a volume can't leave. Where volumes may not be read, the node that was chosen for it is all that is known,
        and it is named only where the scheduler says that the volume keeps the pod from others."""
        bound = "is on node"
        try:
            node = _only_node(await self.client.get(VOLUMES, None, claim["volume"]))
        except (NotFound, Forbidden):
            node, bound = claim["node"], "was made on node"
        away = self.nodes.lost(node)
        if not node or (away_only and not away):
            return ""
        return (
            f"the volume of claim {name} {bound} {node}{', of which nothing is heard' if away else ''}, and is waited for, "
            f"however long; to go on without what it holds: kubectl delete pvc -n {self.owned.job.metadata.namespace} {name}, "
            "and with --force any pod of it left there"
        )


def _waits(member: Member, now_seconds: float) -> bool:
    """For longer than a volume takes to be made: nothing is said of a claim that is about to be bound."""
    starts = member.role in _HOLDERS and member.phase is Phase.STARTING and not member.placed
    return starts and bool(member.waiting_message) and now_seconds - member.since_seconds >= HELD_UP_SECONDS


def _only_node(volume: Object) -> str:
    """The node that the volume can't leave; empty where several can have it."""
    required = ((volume["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    asked = [each for term in required for each in term.get("matchExpressions") or ()]
    named = [
        value for each in asked if each.get("key") == "kubernetes.io/hostname" for value in each.get("values") or ()
    ]
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
    """What is observed, where a member finds no node with another job of the namespace, name and pods, that waits so, too: with
    one, since a thousand that wait for their nodes would each look at, and name, all others."""
    if not _waits_with_a_part(observed.members):
        return observed
    rival = next((name for name, pods in others if _waits_with_a_part(members(pods, now_seconds))), "")
    said = f"{rival} of this namespace waits for nodes, too, while some of its pods have one: suspend one of the two; "
    told = [
        replace(member, waiting_message=f"{said}{member.waiting_message}")
        if rival and member.waiting is Reason.UNSCHEDULABLE
        else member
        for member in observed.members
    ]
    return replace(observed, members=tuple(told))


def _waits_with_a_part(found: Sequence[Member]) -> bool:
    """Whether a pod that learning needs finds no node, but for its volume, while another of the same job has one."""
    waiting = [each for each in found if each.waiting is Reason.UNSCHEDULABLE and each.role in CORE]
    for_room = any(not _ABOUT_A_CLAIM.search(each.waiting_message) for each in waiting)
    return for_room and any(each.alive and each.placed for each in found)

"""What is known of a job beside its pods, gathered for one reconciliation: nodes, answers, checkpoints. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from rljob.api.conditions import ConditionType, Reason
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob.api.status_model import parse_rfc3339

from rljob_operator.core.member import Member, Phase, Role, leader
from rljob_operator.core.observed import CheckpointFacts, CheckpointState, checkpoint_facts
from rljob_operator.kube.job.members import Pod, current, parsed
from rljob_operator.polls.poll import Silence

_GOES = "which is being deleted, and goes with the learner's pod: rljob export saves what was learned before"


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
    words, why = "its end was not seen, and nothing is left of its pod", "EndNotSeen"
    end = Member("learner", Role.LEARNER, Phase.EXITED, now_seconds, incarnation=name, pod_name=name)
    return [replace(end, disrupted=why, last_words=words, deleted=True)]


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
        return replace(newest, state=CheckpointState.GONE, message=f"{where}, {_GOES}"), ""
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

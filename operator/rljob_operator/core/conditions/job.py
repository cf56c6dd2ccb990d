"""Accepted, Admitted, Ready, Progressing, the two of the autoscaler, CheckpointValid, Tracked, Suspended, and the ends."""

from collections.abc import Mapping

from rljob.api.conditions import ConditionType, Reason
from rljob.api.effective import note_on

from rljob_operator.core.conditions import roles as about_roles
from rljob_operator.core.conditions.update import ConditionUpdate, false, true, withdrawn
from rljob_operator.core.context import Mode, ReconcileContext, session_end, some
from rljob_operator.core.member import Member, Role
from rljob_operator.core.observed import CheckpointState
from rljob_operator.core.rules import actors, hangs, progress, success, suspension, waiting

STARVED_FRACTION = 0.9
"""A learner that makes no update and waits for so much of its time is starved, not stalled."""

STALE_INTERVALS = 3
"""A checkpoint older than so many intervals is stale."""


_TOO_LATE = (
    "which affects ttlSecondsAfterFinished alone; to train with it, delete the job and apply it again, or "
    "use another name"
)

_IN_ITS_POD = (
    "checkpoints are in the learner's pod and are lost with it; to keep them, set checkpoint.storage in a new job, or a default "
    "StorageClass before the start"
)
_TWO_AUTOSCALERS = (
    "autoscaling.mode is Internal, and a HorizontalPodAutoscaler, which KEDA makes too, has set actors.replicas to {}: set mode "
    "External, or delete it and set another number with kubectl scale"
)
_RESTARTS = "the spec was changed during the suspension: all members stop and restart with it"


def accepted(context: ReconcileContext, mode: Mode) -> ConditionUpdate:
    """The spec can be run."""
    refusal, rejected = context.desired.refusal, waiting.refused(context, *waiting.REJECTED)
    if refusal is not None:
        return false(ConditionType.ACCEPTED, refusal.reason, refusal.message)
    if rejected and rejected[0].waiting is not None:
        return false(ConditionType.ACCEPTED, rejected[0].waiting, rejected[0].waiting_message)
    return true(ConditionType.ACCEPTED, Reason.VALID, note_on(context.spec))


def edited_after_the_end(context: ReconcileContext) -> ConditionUpdate | None:
    """What is edited of a job that has ended has no effect; None where nothing was."""
    ended = context.status.condition(context.status.state)
    if ended is None or ended.observed_generation >= context.desired.generation:
        return None
    return false(
        ConditionType.ACCEPTED, Reason(ended.type), f"the job was {ended.type} before this change, {_TOO_LATE}"
    )


def admitted(context: ReconcileContext, mode: Mode) -> ConditionUpdate:
    """The job may use resources."""
    admission, over_quota = context.observed.admission, waiting.refused(context, Reason.QUOTA_EXCEEDED)
    if over_quota and (admission is None or admission.admitted):
        return false(ConditionType.ADMITTED, Reason.QUOTA_EXCEEDED, over_quota[0].waiting_message)
    if admission is None:
        return true(ConditionType.ADMITTED, Reason.NOT_MANAGED)
    return ConditionUpdate(ConditionType.ADMITTED, str(admission.admitted), admission.reason, admission.message)


def ready(context: ReconcileContext, mode: Mode) -> ConditionUpdate:
    """Whether training is going on, or has come to its end: a client that waits for a job as for a Deployment waits for this. The
    reason is the job's state in one word."""
    type, outcome = ConditionType.READY, context.memory.outcome
    if mode is Mode.FINISHED and outcome is not None:
        return ConditionUpdate(
            type, str(outcome.state == "Complete"), outcome.state, f"{outcome.reason}: {outcome.message}"
        )
    if mode is Mode.FINISHING and outcome is not None:
        return false(type, Reason.FINISHING, f"{outcome.reason}: {outcome.message}")
    if mode is Mode.SESSION_ENDING:
        end = session_end(context)
        return false(type, Reason.SESSION_ENDED, f"{end[1]}; resuming goes on" if end else "")
    if mode is Mode.ACCEPTING:
        return false(type, Reason.ACCEPTING, "see condition Accepted")
    if mode is Mode.SUSPENDING:
        return _ready_while_suspending(context)
    return _ready_while_running(context)


def _ready_while_suspending(context: ReconcileContext) -> ConditionUpdate:
    if context.alive():
        return false(
            ConditionType.READY, Reason.SUSPENDING, _RESTARTS if _restarts(context) else "see condition Suspended"
        )
    if not context.desired.suspends:
        return false(ConditionType.READY, Reason.WAITING_FOR_QUOTA, "see condition Admitted")
    return false(ConditionType.READY, Reason.SUSPENDED, "spec.suspend is true")


def _restarts(context: ReconcileContext) -> bool:
    """Whether the job is no longer to be suspended, and only starts anew with what was changed."""
    admission = context.observed.admission
    return not context.desired.suspends and (admission is None or admission.admitted)


def _ready_while_running(context: ReconcileContext) -> ConditionUpdate:
    type, advance, since = ConditionType.READY, context.memory.advance, context.memory.starting_since or 0.0
    trained = advance is not None and advance.time >= since
    if context.memory.started is None or not context.learner_ready() or not trained:
        restores = context.observed.checkpoint.usable and context.spec.checkpoint.restore_from != "None" and not trained
        if context.memory.started is not None and not context.learner_ready():
            restores = context.observed.checkpoint.usable
        reason = Reason.RESTORING if restores else Reason.STARTING
        why = _why_waiting(context) or reason
        return false(type, why, some(_waits_for(context)) or _comes_up(context, why))
    lacking = _lacking(context)
    if not progress.advancing(context) or progress.standstill(context):
        lacking.append("the learner stands still")
    elif context.observed.learner is not None and context.observed.learner.given_up:
        lacking.append(context.observed.learner.given_up)
    if lacking:
        return true(type, Reason.DEGRADED, some(lacking))
    return true(type, Reason.RUNNING, "" if context.observed.keeps_checkpoints else _IN_ITS_POD)


def _why_waiting(context: ReconcileContext) -> Reason | None:
    """The job's state where it, or a part that it needs, is refused; None where all are made."""
    reasons = {member.waiting for member in waiting.needed(context)}
    if reasons.intersection(waiting.REJECTED):
        return Reason.ACCEPTING
    return Reason.WAITING_FOR_QUOTA if Reason.QUOTA_EXCEEDED in reasons else None


def _comes_up(context: ReconcileContext, why: Reason) -> str:
    """The parts that are not up yet, of a job in which nothing waits for a place."""
    if why is Reason.ACCEPTING:
        return "see condition Accepted"
    lacking = [role for role in Role if context.ready(role) < context.needed_of(role)]
    return f"coming up: {', '.join(lacking)}" if lacking else "the learner has made no update yet"


def _waits_for(context: ReconcileContext) -> list[str]:
    return waiting.in_words(context) + about_roles.needed_on_the_way(context) + hangs.in_words(context)


def _lacking(context: ReconcileContext) -> list[str]:
    found = _waits_for(context) + about_roles.core_on_lost_nodes(context) + about_roles.not_ready(context)
    if context.observed.checkpoint.state is CheckpointState.STORAGE_ERROR:
        found.append("no checkpoint could be written (see condition CheckpointValid)")
    if context.ready(Role.REPLAY) < context.shards:
        found.append("a replay shard is not ready")
    if context.ready(Role.INFERENCE) < context.inference_servers:
        found.append("an inference server is not ready")
    if context.ready(Role.ACTOR) < context.needed_actors():
        found.append("too few actors are ready")
    elif stuck := about_roles.stuck_actors(context):
        found.append(_stuck_in_words(context, stuck))
    if context.spec.evaluator.enabled:
        stopped = (m for m in context.of(Role.EVALUATOR) if m.failed or m.waiting)
        found += [f"the evaluator is not ready{about_roles.because(m)}" for m in stopped]
        found += success.unreported(context.spec.success_policy, context.observed.learner)
    return found


def _stuck_in_words(context: ReconcileContext, stuck: list[Member]) -> str:
    desired = context.status.autoscaling.desired_replicas
    reasons = (Reason.NODE_LOST if m.node_lost else m.waiting for m in stuck)
    why = sorted({reason for reason in reasons if reason is not None})
    return f"{len(stuck)} of {desired} actors are not ready ({', '.join([*why, some(m.name for m in stuck)])})"


def progressing(context: ReconcileContext, mode: Mode) -> ConditionUpdate:
    """The learner advanced a moment ago."""
    type = ConditionType.PROGRESSING
    if mode in (Mode.FINISHED, Mode.FINISHING):
        return false(type, Reason.FINISHING)
    if mode is Mode.SESSION_ENDING:
        return false(type, Reason.SESSION_ENDED)
    if mode is Mode.SUSPENDING:
        return false(type, Reason.SUSPENDED)
    advance, since = context.memory.advance, context.memory.starting_since or 0.0
    if advance is None or advance.time < since:
        return false(type, Reason.WARMING_UP, progress.filling(context) or "no update since the roles began to come up")
    if standstill := progress.standstill(context):
        return false(type, Reason.EXPERIENCE_BLOCKED, standstill)
    if progress.advancing(context):
        return true(type, Reason.LEARNER_ADVANCING)
    window = progress.stall_window_seconds(context)
    message = f"no update for more than {window:g} seconds; at {context.spec.progress_deadline_seconds} the job fails"
    sample = context.observed.learner
    fresh = sample is not None and context.since(sample.taken_seconds) <= window
    if (
        sample is not None
        and fresh
        and context.learner_ready()
        and (sample.learner_wait_fraction or 0.0) >= STARVED_FRACTION
    ):
        return false(type, Reason.STARVED, message)
    return false(type, Reason.LEARNER_STALLED, message)


def scaling_active(context: ReconcileContext, mode: Mode) -> ConditionUpdate:
    """The number of actors follows fresh figures; with mode External, the number that is recommended does."""
    type = ConditionType.SCALING_ACTIVE
    if mode is not Mode.RUNNING or context.spec.autoscaling.mode == "Disabled":
        why = "the job does not run" if mode is not Mode.RUNNING else f"mode is {context.spec.autoscaling.mode}"
        return false(type, Reason.SCALING_DISABLED, why)
    memory = context.status.autoscaling.memory
    active, message = str(memory.get("active", Reason.WARMING_UP)), str(memory.get("activeMessage", ""))
    if active == Reason.VALID_METRIC_FOUND:
        return true(type, active)
    if active == Reason.STALE_METRICS:
        message = context.observed.missing or message
    return false(type, active, message)


def scaling_limited(context: ReconcileContext, mode: Mode) -> ConditionUpdate:
    """Something keeps the number of actors from the one that is recommended."""
    type, status = ConditionType.SCALING_LIMITED, context.status.autoscaling
    over_quota = [m for m in waiting.refused(context, Reason.QUOTA_EXCEEDED) if m.role is Role.ACTOR]
    if over_quota and mode is Mode.RUNNING:
        fit = len(context.alive(Role.ACTOR))
        message = f"{status.desired_replicas} wanted, {fit} fit: {over_quota[0].waiting_message}"
        return true(type, Reason.QUOTA_LIMITED, message)
    if mode is Mode.RUNNING and context.spec.autoscaling.mode == "Internal" and context.desired.scaled_by_hpa:
        return true(type, Reason.TWO_AUTOSCALERS, _TWO_AUTOSCALERS.format(context.spec.actors.replicas))
    if mode is not Mode.RUNNING or not status.limited_by:
        return false(type, Reason.DESIRED_WITHIN_RANGE)
    message = f"{status.recommended_replicas} recommended"
    if context.spec.autoscaling.mode != "Internal":
        message = f"{context.spec.actors.replicas} asked for"
    return true(type, actors.scaling_reason(status.limited_by), message)


def checkpoint_valid(context: ReconcileContext, mode: Mode) -> ConditionUpdate:
    """The newest checkpoint was re-read, has its digest, and is younger than three intervals."""
    type, facts = ConditionType.CHECKPOINT_VALID, context.observed.checkpoint
    if facts.state is not CheckpointState.VERIFIED:
        return false(type, facts.state.value, facts.message)
    limit = STALE_INTERVALS * context.spec.checkpoint.interval_seconds
    # Time in which a newer checkpoint could have been written: none was while the job was suspended or the machine slept.
    old = context.watched_for(max(facts.time_seconds, context.memory.started or 0.0))
    if mode is Mode.RUNNING and context.memory.started is not None and old > limit:
        return false(type, Reason.STALE, f"step {facts.step:,} is older than {limit} seconds")
    return true(type, Reason.VERIFIED, context.observed.checkpoints_are or _IN_ITS_POD)


def tracked(context: ReconcileContext, mode: Mode) -> ConditionUpdate | None:
    """Figures arrive where they are sent. There is none of a job without trackers."""
    if context.spec.tracking is None:
        return withdrawn(ConditionType.TRACKED)
    return None if context.observed.untracked is None else sent_to(context.observed.untracked)


def sent_to(untracked: Mapping[str, str]) -> ConditionUpdate:
    """What is said of trackers of which these take no points."""
    said = "; ".join(f"{name}: {why}" for name, why in untracked.items())
    return false(ConditionType.TRACKED, Reason.NOT_SENT, said) if said else true(ConditionType.TRACKED, Reason.SENDING)


def suspended(context: ReconcileContext, mode: Mode) -> ConditionUpdate | None:
    """Nothing runs because the user or the queue wants that. There is none of a job that never was suspended, nor of one for
    which there was no quota before it had a pod."""
    type = ConditionType.SUSPENDED
    if mode is not Mode.SUSPENDING:
        before = context.status.condition(type)
        return false(type, Reason.RESUMED) if before is not None and mode is Mode.RUNNING else None
    if context.alive(Role.ACTOR, Role.EVALUATOR):
        return false(type, Reason.DRAINING, _RESTARTS if _restarts(context) else "actors and evaluator are leaving")
    if context.alive():
        return false(type, Reason.CHECKPOINTING, _checkpointing(context))
    if context.desired.suspends:
        return true(type, Reason.USER_REQUESTED, suspension.unsaved_in_words(context))
    was_up = context.memory.started is not None or context.status.condition(type) is not None
    return true(type, Reason.QUOTA_EVICTED, suspension.unsaved_in_words(context)) if was_up else None


def _checkpointing(context: ReconcileContext) -> str:
    known = context.memory.suspension
    if known is not None and known.saved:
        return "the other roles are leaving"
    facts, longest = context.observed.checkpoint, f"{suspension.PATIENCE_SECONDS:g} s after the suspension began"
    if not context.observed.keeps_checkpoints:
        return f"the checkpoints are in the learner's pod and go with it; suspend: false keeps them, else they are lost {longest}"
    if facts.state is CheckpointState.STORAGE_ERROR and facts.message:
        return f"no verified checkpoint yet: {facts.message}; the last good one counts {longest}"
    return "waiting for a verified checkpoint"


def failure_target(context: ReconcileContext, mode: Mode) -> ConditionUpdate | None:
    """The job is going to fail."""
    outcome = context.memory.outcome
    if outcome is None or outcome.state != "Failed":
        return None
    return true(ConditionType.FAILURE_TARGET, outcome.reason, outcome.message)


def end(context: ReconcileContext, mode: Mode) -> ConditionUpdate | None:
    """Complete or Failed, once nothing of the job must leave any more."""
    outcome = context.memory.outcome
    if outcome is None or mode is not Mode.FINISHED:
        return None
    type = ConditionType.COMPLETE if outcome.state == "Complete" else ConditionType.FAILED
    return true(type, outcome.reason, "; ".join(filter(None, (outcome.message, _trained(context)))))


def stalled(context: ReconcileContext, mode: Mode) -> ConditionUpdate | None:
    """A failure under kstatus's name for it, by which Helm, Flux and kpt give up: `Ready` alone would have them wait on."""
    failed = failure_target(context, mode) if mode is Mode.FINISHED else None
    return None if failed is None else true(ConditionType.STALLED, failed.reason, failed.message)


def _trained(context: ReconcileContext) -> str:
    """Where the trained weights are, or that they are lost."""
    facts, where = context.observed.checkpoint, context.observed.checkpoints_are
    if not where:
        return "the checkpoints were in the learner's pod and are lost"
    return f"the trained policy is {where}" if facts.usable else ""

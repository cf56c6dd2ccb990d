"""The plain facts of the status: who is ready, who is there, and which spec is in force; and events, a sentence a change."""

from typing import Final

from rljob.api.conditions import ConditionType, Reason
from rljob.api.learner_status import ForkStatement
from rljob.api.live import digest, wanted
from rljob.api.status import (
    ActorsStatus,
    AdmissionStatus,
    Condition,
    Failure,
    FollowedStatus,
    ForkStatus,
    InferenceStatus,
    LearnerStatus,
    ReplayStatus,
    RLJobStatus,
)
from rljob.api.status_model import stamp

from rljob_operator.core.context import ReconcileContext, bounded
from rljob_operator.core.decision import Note
from rljob_operator.core.member import Phase, Role
from rljob_operator.core.rules.failures import with_code


def members(context: ReconcileContext) -> ReconcileContext:
    """Write what was seen of learner, replay, inference servers, actors and admission."""
    ready, draining = context.ready(Role.ACTOR), context.count(Role.ACTOR, Phase.DRAINING)
    starting = context.count(Role.ACTOR, Phase.STARTING)
    status = context.status
    found = {
        "learner": _learner(context),
        "replay": ReplayStatus.model_construct(ready=context.ready(Role.REPLAY), desired=context.shards),
        "inference": InferenceStatus.model_construct(
            ready=context.ready(Role.INFERENCE), desired=context.inference_servers
        ),
        "actors": ActorsStatus.model_construct(
            replicas=ready + starting, ready=ready, draining=draining, selector=bounded(context.observed.selector, 512)
        ),
        "following": _following(context),
        "fork": _fork(context),
        "admission": _admission(context),
    }
    changed = {name: value for name, value in found.items() if value != getattr(status, name)}
    return context.with_status(**changed) if changed else context


def spec(context: ReconcileContext, generation: int) -> ReconcileContext:
    """Write which generation of the spec was reconciled, and what is learned by it; what was before stays where nothing is."""
    if context.desired.blocked:
        return context.with_status(observed_generation=generation)
    found = generation, context.spec.algorithm.type, context.spec.environment.id
    status = context.status
    if found == (status.observed_generation, status.algorithm, status.environment):
        return context
    return context.with_status(observed_generation=generation, algorithm=found[1], environment=found[2])


def _learner(context: ReconcileContext) -> LearnerStatus:
    for member in context.alive(Role.LEARNER):
        since = member.ready_seconds
        return LearnerStatus.model_construct(
            ready=member.phase is Phase.READY,
            pod_name=bounded(member.pod_name or member.name, 253),
            node_name=bounded(member.node_name, 253),
            start_time=None if since is None else stamp(max(0.0, since)),
        )
    return LearnerStatus.model_construct(ready=False, pod_name="", node_name="", start_time=None)


def _following(context: ReconcileContext) -> FollowedStatus | None:
    said, name = context.observed.learner, digest(wanted(context.spec))
    if said is None:
        return context.status.following
    followed = context.learner_ready() and said.following == name
    return FollowedStatus.model_construct(wanted=name, followed=followed, scheduled=said.scheduled or 0)


def _fork(context: ReconcileContext) -> ForkStatus | None:
    """What the learner says of the fork that is asked for; a later life of it does not know when it was done."""
    asked, before, said = context.spec.fork, context.status.fork, context.observed.learner
    if asked is None:
        return None
    known = before is not None and before.id == asked.id
    told = said.fork if said is not None and said.fork is not None else ForkStatement()
    if told.id != asked.id or told.state not in ("Done", "Refused"):
        told = ForkStatement(state="Waiting")
    if before is not None and known and told.state in (before.state, "Waiting"):
        return before
    return ForkStatus.model_construct(
        id=asked.id,
        state=told.state,
        message=bounded(told.message),
        source=asked.source,
        updates=told.updates,
        raw_frames=told.raw_frames,
    )


def _admission(context: ReconcileContext) -> AdmissionStatus | None:
    admission = context.observed.admission
    if admission is None:
        return None
    return AdmissionStatus.model_construct(
        workload=bounded(admission.workload, 253),
        actor_blocks=admission.actor_blocks,
        pending_blocks=admission.pending_blocks,
    )


_AT_FIRST: Final = frozenset(
    {
        Reason.PODS_PENDING,
        Reason.STARTING,
        Reason.WARMING_UP,
        Reason.SCALING_DISABLED,
        Reason.DESIRED_WITHIN_RANGE,
        Reason.MISSING,
        Reason.VALID,
    }
)
"""Reasons of conditions that every new job has: events about them would tell nothing."""
_TROUBLE: Final = frozenset(
    {
        Reason.ACTORS_CRASH_LOOPING,
        Reason.BACKOFF_LIMIT_EXCEEDED,
        Reason.CRASH_LOOPING,
        Reason.DEADLINE_EXCEEDED,
        Reason.DEGRADED,
        Reason.EXPERIENCE_BLOCKED,
        Reason.FAILED,
        Reason.FAILURE_POLICY_RULE,
        Reason.GONE,
        Reason.IMAGE_PULL_FAILED,
        Reason.INVALID_SPEC,
        Reason.KEYS_LOST,
        Reason.LEARNER_STALLED,
        Reason.NAME_CONFLICT,
        Reason.NAMESPACE_TERMINATING,
        Reason.NODE_LOST,
        Reason.NON_FINITE_LOSS,
        Reason.NOT_MADE,
        Reason.POD_SECURITY_FORBIDDEN,
        Reason.POD_TEMPLATE_REJECTED,
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        Reason.QUOTA_EXCEEDED,
        Reason.RENDERING_UNKNOWN,
        Reason.STALE,
        Reason.STARTUP_DEADLINE_EXCEEDED,
        Reason.STORAGE_ERROR,
        Reason.TWO_AUTOSCALERS,
        Reason.UNSCHEDULABLE,
    }
)
"""Reasons of conditions that a person should look at; what belongs to coming up, going down and scaling is not among them."""


def notes_between(before: RLJobStatus, after: RLJobStatus) -> tuple[Note, ...]:
    """New failures, changed conditions, and a changed number of actors."""
    if after is before:
        return ()
    found = [_end(failure) for failure in after.failures if failure not in before.failures]
    known = {c.type: c for c in before.conditions}
    # Stalled says again what Failed says.
    found += [
        _sentence(c) for c in after.conditions if c.type != ConditionType.STALLED and _differs(known.get(c.type), c)
    ]
    was, now = before.autoscaling.desired_replicas, after.autoscaling.desired_replicas
    if was != now and before.start_time is not None:
        found.append(Note(f"actors {was} -> {now}: {after.autoscaling.last_decision}"))
    return tuple(found)


def _differs(old: Condition | None, new: Condition) -> bool:
    if old is None:
        return new.reason not in _AT_FIRST and not (new.reason == Reason.NOT_MANAGED and not new.message)
    # What is on its way out, and what is lost, are both Gone.
    return (old.status, old.reason) != (new.status, new.reason) or (
        new.reason == Reason.GONE and old.message != new.message
    )


def _end(failure: Failure) -> Note:
    text = f"{failure.pod_name} ended{with_code(failure.exit_code)} ({failure.action}): {failure.message}"
    return Note(text, warning=failure.action not in ("Ignore", "RestartRoleAndIgnoreBackoff"))


def _sentence(condition: Condition) -> Note:
    text = f"{condition.type}={condition.status} ({condition.reason})"
    return Note(f"{text}: {condition.message}" if condition.message else text, warning=condition.reason in _TROUBLE)

"""The plain facts of the status: who is ready, who is there, and which spec is in force."""

from __future__ import annotations

from rljob.api.status import ActorsStatus, AdmissionStatus, InferenceStatus, LearnerStatus, ReplayStatus
from rljob.api.timestamps import stamp

from rljob_operator.core.context import ReconcileContext, bounded
from rljob_operator.core.member import Phase, Role


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
        "admission": _admission(context),
    }
    changed = {name: value for name, value in found.items() if value != getattr(status, name)}
    return context.with_status(**changed) if changed else context


def spec(context: ReconcileContext, generation: int) -> ReconcileContext:
    """Write which generation of the spec was reconciled, and what is in force by it; what was before stays where nothing is."""
    if context.desired.blocked:
        return context.with_status(observed_generation=generation)
    if context.status.observed_generation == generation and context.status.effective_spec:
        return context
    in_force = context.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return context.with_status(observed_generation=generation, effective_spec=in_force)


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


def _admission(context: ReconcileContext) -> AdmissionStatus | None:
    admission = context.observed.admission
    if admission is None:
        return None
    return AdmissionStatus.model_construct(
        workload=bounded(admission.workload, 253),
        actor_blocks=admission.actor_blocks,
        pending_blocks=admission.pending_blocks,
    )

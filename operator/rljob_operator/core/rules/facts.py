"""The plain facts of the status: who is ready, who is there, and which spec is in force."""

from __future__ import annotations

from rljob.api.status import ActorsStatus, AdmissionStatus, InferenceStatus, LearnerStatus, ReplayStatus
from rljob.api.timestamps import stamp

from rljob_operator.core.context import Look, bounded
from rljob_operator.core.member import Phase, Role


def members(look: Look) -> Look:
    """Write what was seen of learner, replay, inference servers, actors and admission."""
    ready, draining = look.ready(Role.ACTOR), look.count(Role.ACTOR, Phase.DRAINING)
    starting = look.count(Role.ACTOR, Phase.STARTING)
    status = look.status
    found = {
        "learner": _learner(look),
        "replay": ReplayStatus.model_construct(ready=look.ready(Role.REPLAY), desired=look.shards),
        "inference": InferenceStatus.model_construct(ready=look.ready(Role.INFERENCE), desired=look.inference_servers),
        "actors": ActorsStatus.model_construct(
            replicas=ready + starting, ready=ready, draining=draining, selector=bounded(look.observed.selector, 512)
        ),
        "admission": _admission(look),
    }
    changed = {name: value for name, value in found.items() if value != getattr(status, name)}
    return look.tell(**changed) if changed else look


def spec(look: Look, generation: int) -> Look:
    """Write which generation of the spec this look was about, and what is in force by it."""
    if look.status.observed_generation == generation and look.status.effective_spec:
        return look
    in_force = look.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return look.tell(observed_generation=generation, effective_spec=in_force)


def _learner(look: Look) -> LearnerStatus:
    for member in look.alive(Role.LEARNER):
        since = member.ready_seconds
        return LearnerStatus.model_construct(
            ready=member.phase is Phase.READY,
            pod_name=bounded(member.pod_name or member.name, 253),
            node_name=bounded(member.node_name, 253),
            start_time=None if since is None else stamp(max(0.0, since)),
        )
    return LearnerStatus.model_construct(ready=False, pod_name="", node_name="", start_time=None)


def _admission(look: Look) -> AdmissionStatus | None:
    admission = look.observed.admission
    if admission is None:
        return None
    return AdmissionStatus.model_construct(
        workload=bounded(admission.workload, 253),
        actor_blocks=admission.actor_blocks,
        pending_blocks=admission.pending_blocks,
    )

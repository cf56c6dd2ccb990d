"""Rules of ``spec.queue``: a queue that never holds a batch, and limits on age below the time that unrolls merely travel."""

from __future__ import annotations

from rljob.api.impala import ImpalaParameters
from rljob.api.job import RLJobSpec
from rljob.api.rule import Outcome, rule
from rljob.api.staleness import in_flight

_ON_THE_WAY = "self.actors.replicas * (self.actors.envsPerActor > 4 ? self.actors.envsPerActor : 4)"
_UPDATES_A_BATCH = "$epochs * $minibatches"


def _at_most(queued: str, limit: str) -> str:
    """CEL: everything in flight passes within ``limit`` updates. The division of `InFlight.updates` is multiplied out."""
    return (
        f"({queued} + {_ON_THE_WAY} + $prefetchBatches * $batchSize) * {_UPDATES_A_BATCH} <= "
        f"({limit} - $publishInterval) * $batchSize"
    )


@rule(
    RLJobSpec,
    "queue",
    algorithm="IMPALA",
    reason="FieldValueRequired",
    cel="has(self.queue)",
    message="required with algorithm IMPALA; queue: {} takes its defaults",
)
def queue_required(spec: RLJobSpec, parameters: ImpalaParameters) -> Outcome:
    return "required with algorithm IMPALA; queue: {} takes its defaults" if spec.queue is None else None


@rule(
    RLJobSpec,
    "replay",
    algorithm="IMPALA",
    reason="FieldValueForbidden",
    cel="!has(self.replay)",
    message="not allowed with algorithm IMPALA: it learns from every unroll once and stores none; remove it, and say how many "
    "may wait in spec.queue",
)
def no_replay(spec: RLJobSpec, parameters: ImpalaParameters) -> Outcome:
    if spec.replay is None:
        return None
    return (
        "not allowed with algorithm IMPALA: it learns from every unroll once and stores none; remove it, and say how many may "
        "wait in spec.queue"
    )


@rule(
    RLJobSpec,
    "queue.capacity",
    algorithm="IMPALA",
    cel="!has(self.queue) || self.queue.capacity >= $batchSize",
    message="allowed: at least the algorithm's batchSize (unrolls); a smaller queue never holds a whole batch and training "
    "never starts",
)
def a_batch_in_the_queue(spec: RLJobSpec, parameters: ImpalaParameters) -> Outcome:
    if spec.queue is None or spec.queue.capacity >= parameters.batch_size:
        return None
    return (
        f"allowed: at least batchSize ({parameters.batch_size:,} unrolls); a smaller queue never holds a whole batch and "
        "training never starts"
    )


@rule(
    RLJobSpec,
    "queue.maxPolicyLagUpdates",
    algorithm="IMPALA",
    cel="!has(self.queue) || self.queue.capacity < $batchSize || "
    + _at_most("self.queue.capacity", "self.queue.maxPolicyLagUpdates"),
    message="allowed: at least ((queue.capacity + actors.replicas * max(4, envsPerActor)) / batchSize + prefetchBatches) * "
    "epochs * minibatches + publishInterval; with the queue full, unrolls would be discarded for the time they merely wait",
)
def lag_limit_above_the_latency(spec: RLJobSpec, parameters: ImpalaParameters) -> Outcome:
    queue = spec.queue
    if queue is None or queue.capacity < parameters.batch_size:
        return None
    latency = in_flight(spec, queue, parameters)
    if queue.max_policy_lag_updates >= latency.updates:
        return None
    return f"allowed: at least {latency}; with the queue full, unrolls would be discarded for the time they merely wait"


@rule(
    RLJobSpec,
    "autoscaling.guards.maxPolicyLagUpdates",
    algorithm="IMPALA",
    cel="!has(self.queue) || self.autoscaling.mode == 'Disabled' || !has(self.autoscaling.guards.maxPolicyLagUpdates) || "
    "self.autoscaling.guards.maxPolicyLagUpdates <= self.queue.maxPolicyLagUpdates",
    message="allowed: at most queue.maxPolicyLagUpdates; older unrolls are discarded before their lag is seen, so the guard "
    "would never act",
)
def guard_below_the_lag_limit(spec: RLJobSpec, parameters: ImpalaParameters) -> Outcome:
    queue, guard = spec.queue, spec.autoscaling.guards.max_policy_lag_updates
    if queue is None or spec.autoscaling.mode == "Disabled" or guard <= queue.max_policy_lag_updates:
        return None
    return (
        f"allowed: at most queue.maxPolicyLagUpdates ({queue.max_policy_lag_updates}); older unrolls are discarded before "
        "their lag is seen, so the guard would never act"
    )


_GUARD = (
    "(has(self.autoscaling.guards.maxPolicyLagUpdates) ? self.autoscaling.guards.maxPolicyLagUpdates : "
    "self.queue.maxPolicyLagUpdates < 2 ? 1 : self.queue.maxPolicyLagUpdates * 80 / 100)"
)


@rule(
    RLJobSpec,
    "autoscaling.guards.maxPolicyLagUpdates",
    algorithm="IMPALA",
    cel="!has(self.queue) || self.autoscaling.mode == 'Disabled' || self.queue.capacity < $batchSize || "
    f"!({_at_most('self.queue.capacity', 'self.queue.maxPolicyLagUpdates')}) || "
    + _at_most("self.queue.capacity * self.autoscaling.target.queueUtilizationPercent / 100", _GUARD),
    message="allowed: at least the updates that pass while an unroll travels, with the queue filled to "
    "target.queueUtilizationPercent; below it the guard would take actors away that the target asks for. Raise it (unset, it "
    "is four fifths of queue.maxPolicyLagUpdates), or lower queue.capacity",
)
def guard_above_the_latency_at_the_target(spec: RLJobSpec, parameters: ImpalaParameters) -> Outcome:
    queue, scaling = spec.queue, spec.autoscaling
    if queue is None or scaling.mode == "Disabled" or queue.capacity < parameters.batch_size:
        return None
    if queue.max_policy_lag_updates < in_flight(spec, queue, parameters).updates:
        return None
    percent = scaling.target.queue_utilization_percent
    latency = in_flight(spec, queue, parameters, percent)
    if scaling.guards.max_policy_lag_updates >= latency.updates:
        return None
    return (
        f"allowed: at least {latency}, with the queue filled to target.queueUtilizationPercent ({percent}); below it the guard "
        "would take actors away that the target asks for. Raise it (unset, it is four fifths of "
        f"queue.maxPolicyLagUpdates {queue.max_policy_lag_updates}), or lower queue.capacity"
    )

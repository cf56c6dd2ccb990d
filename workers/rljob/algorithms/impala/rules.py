"""Rules of jobs that IMPALA learns, most of them of limits on age below the time that unrolls merely travel."""

from rljob.algorithms.impala.parameters import InFlight, in_flight
from rljob.api.job import RLJobSpec
from rljob.api.parameters import ParameterSet
from rljob.api.rule import Outcome, at_most, holds, rule

_LAG = "algorithm.impala.unrollQueue.maxPolicyLagUpdates"
_GUARD = "autoscaling.guards.maxPolicyLagUpdates"
_IN_FLIGHT = ("unrollQueue.capacity", "batchSize", "prefetchBatches", "epochs", "minibatches", "publishInterval")


_RULES = (
    at_most(
        "c_clip_below_rho_clip",
        ParameterSet,
        "cClip",
        "rhoClip",
        "V-trace is defined for cClip <= rhoClip only",
        parameters=("cClip", "rhoClip"),
    ),
    at_most(
        "weights_refreshed_within_an_unroll",
        ParameterSet,
        "weightsRefreshSteps",
        "unrollLength",
        "0 looks for newer weights only between unrolls",
        parameters=("weightsRefreshSteps", "unrollLength"),
    ),
    holds(
        "weights_refreshed_by_the_server",
        RLJobSpec,
        "algorithm.impala.weightsRefreshSteps",
        lambda spec: spec.actors.inference != "Central" or spec.algorithm.parameters.weights_refresh_steps == 1,
        algorithm="IMPALA",
        parameters=("weightsRefreshSteps",),
        also=("actors.inference",),
        message="allowed: 1 or nothing with actors.inference: Central; a server answers with its newest weights at every step",
    ),
)


def _in_flight(spec: RLJobSpec, fill_percent: int = 100) -> InFlight:
    """With the actors that the job starts with."""
    return in_flight(spec.algorithm.parameters, spec.actors.replicas, spec.actors.envs_per_actor, fill_percent)


@rule(
    RLJobSpec,
    _LAG,
    algorithm="IMPALA",
    parameters=_IN_FLIGHT,
    also=("actors.replicas", "actors.envsPerActor"),
    message="allowed: at least ((unrollQueue.capacity + actors.replicas * max(4, envsPerActor)) / batchSize + prefetchBatches) * "
    "epochs * minibatches + publishInterval; otherwise unrolls would be discarded only for waiting in a full queue",
)
def lag_limit_above_the_latency(spec: RLJobSpec) -> Outcome:
    parameters = spec.algorithm.parameters
    queue = parameters.unroll_queue
    if queue.capacity < parameters.batch_size:
        return None
    latency = _in_flight(spec)
    if queue.max_policy_lag_updates >= latency.updates:
        return None
    return f"allowed: at least {latency}; otherwise unrolls would be discarded only for waiting in a full queue"


@rule(
    RLJobSpec,
    _GUARD,
    algorithm="IMPALA",
    parameters=("unrollQueue.maxPolicyLagUpdates",),
    also=("autoscaling.mode",),
    message="allowed: at most unrollQueue.maxPolicyLagUpdates; older unrolls are discarded before their lag is measured, so "
    "the guard would never act",
)
def guard_below_the_lag_limit(spec: RLJobSpec) -> Outcome:
    parameters = spec.algorithm.parameters
    queue, guard = parameters.unroll_queue, spec.autoscaling.guards.max_policy_lag_updates
    if spec.autoscaling.mode == "Disabled" or guard <= queue.max_policy_lag_updates:
        return None
    return (
        f"allowed: at most unrollQueue.maxPolicyLagUpdates ({queue.max_policy_lag_updates}); older unrolls are discarded before "
        "their lag is seen, so the guard would never act"
    )


@rule(
    RLJobSpec,
    _GUARD,
    algorithm="IMPALA",
    parameters=(*_IN_FLIGHT, "unrollQueue.maxPolicyLagUpdates"),
    also=("actors.replicas", "actors.envsPerActor", "autoscaling.mode", "autoscaling.target.queueUtilizationPercent"),
    message="allowed: at least the updates that pass while an unroll travels, with the queue filled to "
    "target.queueUtilizationPercent; below that, the guard would remove actors that the target needs. Raise it (unset: four "
    "fifths of unrollQueue.maxPolicyLagUpdates), or lower unrollQueue.capacity",
)
def guard_above_the_latency_at_the_target(spec: RLJobSpec) -> Outcome:
    parameters = spec.algorithm.parameters
    queue, scaling = parameters.unroll_queue, spec.autoscaling
    if scaling.mode == "Disabled" or queue.capacity < parameters.batch_size:
        return None
    if queue.max_policy_lag_updates < _in_flight(spec).updates:
        return None
    percent = scaling.target.queue_utilization_percent
    latency = _in_flight(spec, percent)
    if scaling.guards.max_policy_lag_updates >= latency.updates:
        return None
    return (
        f"allowed: at least {latency}, with the queue filled to target.queueUtilizationPercent ({percent}); below it the guard "
        "would take actors away that the target asks for. Raise it (unset, it is four fifths of "
        f"unrollQueue.maxPolicyLagUpdates {queue.max_policy_lag_updates}), or lower unrollQueue.capacity"
    )

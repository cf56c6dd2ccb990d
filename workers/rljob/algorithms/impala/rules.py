"""Rules of jobs that IMPALA learns, most of them of limits on age below the time that unrolls merely travel."""

import math

from rljob.algorithms.impala.parameters import updates_in_flight
from rljob.api.job import RLJobSpec
from rljob.api.parameters import ParameterSet
from rljob.api.rule import Rule, at_least, at_most

_LAG = "algorithm.impala.unrollQueue.maxPolicyLagUpdates"
_GUARD = "autoscaling.guards.maxPolicyLagUpdates"
_IN_FLIGHT = ("unrollQueue.capacity", "batchSize", "prefetchBatches", "epochs", "minibatches", "publishInterval")


def _in_flight(spec: RLJobSpec, fill_percent: int = 100) -> int:
    """Updates with the actors that the job starts with; 0 where the queue holds no batch, which another rule tells."""
    parameters = spec.algorithm.parameters
    if parameters.unroll_queue.capacity < parameters.batch_size:
        return 0
    return updates_in_flight(parameters, spec.actors.replicas, spec.actors.envs_per_actor, fill_percent)


def _at_the_target(spec: RLJobSpec) -> int:
    """The same with the queue as the autoscaler wants it; 0 without one, and where the lag limit itself is too low."""
    limit = spec.algorithm.parameters.unroll_queue.max_policy_lag_updates
    asked = spec.autoscaling.mode != "Disabled" and limit >= _in_flight(spec)
    return _in_flight(spec, spec.autoscaling.target.queue_utilization_percent) if asked else 0


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
    Rule(
        "weights_refreshed_by_the_server",
        RLJobSpec,
        "algorithm.impala.weightsRefreshSteps",
        lambda spec: spec.actors.inference != "Central" or spec.algorithm.parameters.weights_refresh_steps == 1,
        algorithm="IMPALA",
        parameters=("weightsRefreshSteps",),
        message="allowed: 1 or nothing with actors.inference: Central; a server answers with its newest weights at every step",
    ),
    at_least(
        "lag_limit_above_the_latency",
        RLJobSpec,
        _LAG,
        "((unrollQueue.capacity + actors.replicas * max(4, envsPerActor)) / batchSize + prefetchBatches) * epochs * minibatches "
        "+ publishInterval",
        "otherwise unrolls would be discarded only for waiting in a full queue",
        _in_flight,
        algorithm="IMPALA",
        parameters=_IN_FLIGHT,
    ),
    at_most(
        "guard_below_the_lag_limit",
        RLJobSpec,
        _GUARD,
        "unrollQueue.maxPolicyLagUpdates",
        "older unrolls are discarded before their lag is measured, so the guard would never act",
        lambda spec: (
            math.inf
            if spec.autoscaling.mode == "Disabled"
            else spec.algorithm.parameters.unroll_queue.max_policy_lag_updates
        ),
        algorithm="IMPALA",
        parameters=("unrollQueue.maxPolicyLagUpdates",),
    ),
    at_least(
        "guard_above_the_latency_at_the_target",
        RLJobSpec,
        _GUARD,
        "the updates that pass while an unroll travels, with the queue filled to target.queueUtilizationPercent",
        "below that, the guard would remove actors that the target needs. Raise it (unset: four fifths of "
        "unrollQueue.maxPolicyLagUpdates), or lower unrollQueue.capacity",
        _at_the_target,
        algorithm="IMPALA",
        parameters=(*_IN_FLIGHT, "unrollQueue.maxPolicyLagUpdates"),
    ),
)

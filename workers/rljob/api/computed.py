"""Defaults that follow from other fields: in words for the documentation, and as functions of the job.

None of them follows from what may change at any time, such as the number of actors, unless it may change at any time itself:
roles read most of these when they start, and would go on with the old value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from rljob.api.autoscaling import AutoscalingSpec, ScalingGuards
from rljob.api.built_in import BUILT_IN
from rljob.api.environment import EnvironmentSource
from rljob.api.fields import default_in_words
from rljob.api.impala import MOST_LAG_UPDATES, ImpalaParameters, UnrollQueue
from rljob.api.job import RLJobSpec
from rljob.api.ppo import PPOParameters
from rljob.api.replay import Prioritization, RateLimiter, ReplaySpec
from rljob.api.roles import InferenceSpec
from rljob.api.staleness import in_flight

GUARD_PERCENT = 80
"""The autoscaler's guard on policy lag, in percent of unrollQueue.maxPolicyLagUpdates: it must act before unrolls are discarded,
for their lag is then seen no more."""
APEX_GUARD_UPDATES = 400
ACTORS_OF_THE_LAG_LIMIT = 8
"""Actors that may join before unrolls are discarded for the time they merely wait."""
LEAST_LAG_LIMIT_UPDATES = 50
"""A learner that makes one update a batch would else discard what it leaves waiting while it saves or compiles."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A default that follows from other fields."""

    words: str
    """What it is, for people."""
    value: Callable[[RLJobSpec], Any]
    """What it is in a job whose fields above it in `COMPUTED` are in place."""
    algorithm: str = ""
    """The algorithm whose jobs alone have the field; empty for all."""


def _impala(spec: RLJobSpec) -> ImpalaParameters:
    return spec.algorithm.parameters_as(ImpalaParameters)


def _ppo(spec: RLJobSpec) -> PPOParameters:
    return spec.algorithm.parameters_as(PPOParameters)


def _of_sac(spec: RLJobSpec, its: Any, others: Any) -> Any:
    return its if spec.algorithm.type == "SAC" else others


def _lag_limit(spec: RLJobSpec) -> int:
    needed = replace(in_flight(spec, _impala(spec)), actors=ACTORS_OF_THE_LAG_LIMIT).updates
    return min(max(LEAST_LAG_LIMIT_UPDATES, needed), MOST_LAG_UPDATES)


def _guard(spec: RLJobSpec) -> int:
    if spec.algorithm.type == "PPO":
        return 2 * _ppo(spec).updates_per_batch
    if spec.algorithm.type != "IMPALA":
        return APEX_GUARD_UPDATES
    return max(1, _impala(spec).unroll_queue.max_policy_lag_updates * GUARD_PERCENT // 100)


def _most_actors(spec: RLJobSpec) -> int:
    most = _ppo(spec).batch_size // spec.actors.envs_per_actor if spec.algorithm.type == "PPO" else 100
    return max(1, most, spec.actors.replicas, spec.autoscaling.min_replicas)


def _min_size(spec: RLJobSpec) -> int:
    batch, capacity, usual = _drawn(spec)[0], spec.required_replay.capacity, int(_of_sac(spec, 5_000, 50_000))
    return max(min(usual, capacity), min(batch, capacity))


def _drawn(spec: RLJobSpec) -> tuple[int, int]:
    """Transitions of a batch and of a chunk; 0 where they are parameters of a Custom algorithm, which not every program can load.
    Whether the limiter fits those is asked where it is loaded."""
    declared = BUILT_IN.get(spec.algorithm.type)
    if declared is None or not declared.from_replay:
        return 0, 0
    parameters = spec.algorithm.parameters
    return parameters.batch_size, parameters.chunk_length


def _error_buffer(spec: RLJobSpec) -> float:
    """A tenth of the samples that minSize stands for, but never less than four chunks of 50 steps a shard, so that neither side
    waits for the other at every chunk; and never so narrow that the next chunk may not be inserted and the next batch not be
    drawn (`rules.replay.no_mutual_wait`)."""
    replay, (batch, chunk) = spec.required_replay, _drawn(spec)
    limiter, ratio = replay.rate_limiter, max(1.0, replay.rate_limiter.samples_per_insert)
    least = replay.shards * max(2 * ratio * chunk, float(batch))
    return max(ratio * max(0.1 * limiter.min_size, 200.0 * replay.shards), least)


COMPUTED: Mapping[tuple[type[BaseModel], str], Computed] = MappingProxyType(
    {
        (EnvironmentSource, "actions"): Computed(
            "Clipped; Squashed for SAC", lambda spec: _of_sac(spec, "Squashed", "Clipped")
        ),
        (UnrollQueue, "capacity"): Computed("2 * batchSize", lambda spec: 2 * _impala(spec).batch_size, "IMPALA"),
        (UnrollQueue, "max_policy_lag_updates"): Computed(
            f"what unrolls of {ACTORS_OF_THE_LAG_LIMIT} actors need through a full queue, at least {LEAST_LAG_LIMIT_UPDATES}",
            _lag_limit,
            "IMPALA",
        ),
        (ReplaySpec, "capacity"): Computed(
            "2000000; 1000000 for SAC", lambda spec: _of_sac(spec, 1_000_000, 2_000_000)
        ),
        (Prioritization, "exponent"): Computed("0.6; 0 for SAC", lambda spec: _of_sac(spec, 0.0, 0.6)),
        (RateLimiter, "samples_per_insert"): Computed(
            "8; batchSize for SAC, which is an update a step", lambda spec: float(_of_sac(spec, _drawn(spec)[0], 8))
        ),
        (RateLimiter, "min_size"): Computed(
            "50000, 5000 for SAC, or capacity where that is less; at least batchSize", _min_size
        ),
        (RateLimiter, "error_buffer"): Computed(
            "a tenth of the samples of minSize, at least shards * max(200 * samplesPerInsert, "
            "2 * samplesPerInsert * chunkLength, batchSize)",
            _error_buffer,
        ),
        (InferenceSpec, "max_batch_size"): Computed(
            "64, or actors.envsPerActor where that is more", lambda spec: max(64, spec.actors.envs_per_actor)
        ),
        (AutoscalingSpec, "max_replicas"): Computed(
            "100, for PPO as many as batchSize / envsPerActor, or actors.replicas or minReplicas where that is more",
            _most_actors,
        ),
        (ScalingGuards, "max_policy_lag_updates"): Computed(
            f"{APEX_GUARD_UPDATES} for ApeXDQN and SAC; for IMPALA {GUARD_PERCENT} % of unrollQueue.maxPolicyLagUpdates, as "
            "older unrolls are discarded before their lag is seen; for PPO the updates of two iterations",
            _guard,
        ),
    }
)
"""(model, field) -> its default, in the order in which they follow from each other."""


def computed_words(model: type[BaseModel], name: str) -> str:
    """A default that no value says, in words; empty where there is none."""
    found = COMPUTED.get((model, name))
    return found.words if found is not None else default_in_words(model, name)

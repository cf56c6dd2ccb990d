"""IMPALA as the manifest knows it."""

from typing import Any

from rljob.algorithms.impala.parameters import ImpalaParameters
from rljob.algorithms.impala.presets import PRESETS
from rljob.algorithms.impala.staleness import in_flight
from rljob.api.autoscaling import GUARD_PERCENT, ScalingGuards
from rljob.api.declaration import BuiltIn, Computed
from rljob.api.networks import OF_UNROLLS
from rljob.api.parameters import MOST_LAG_UPDATES, UnrollQueue

_ACTORS_OF_THE_LAG_LIMIT = 8
"""Actors that may join before unrolls are discarded for the time they merely wait."""
_LEAST_LAG_LIMIT_UPDATES = 50
"""A learner that makes one update a batch would else discard what it leaves waiting while it saves or compiles."""


def _lag_limit(spec: Any) -> int:
    needed = in_flight(spec.algorithm.parameters, _ACTORS_OF_THE_LAG_LIMIT, spec.actors.envs_per_actor).updates
    return min(max(_LEAST_LAG_LIMIT_UPDATES, needed), MOST_LAG_UPDATES)


DECLARED = BuiltIn(
    name="IMPALA",
    block="impala",
    about="Hyper-parameters of IMPALA alone (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561).",
    parameters=ImpalaParameters,
    networks=OF_UNROLLS,
    takes=frozenset({"choices", "controls", "masks", "critic"}),
    elsewhere=("A2C", "A3C", "APPO"),
    defaults={
        (UnrollQueue, "capacity"): Computed("2 * batchSize", lambda spec: 2 * spec.algorithm.parameters.batch_size),
        (UnrollQueue, "max_policy_lag_updates"): Computed(
            f"what unrolls of {_ACTORS_OF_THE_LAG_LIMIT} actors need through a full queue, at least {_LEAST_LAG_LIMIT_UPDATES}",
            _lag_limit,
        ),
        (ScalingGuards, "max_policy_lag_updates"): Computed(
            f"{GUARD_PERCENT} % of unrollQueue.maxPolicyLagUpdates",
            lambda spec: max(1, spec.algorithm.parameters.unroll_queue.max_policy_lag_updates * GUARD_PERCENT // 100),
        ),
    },
    presets=PRESETS,
)

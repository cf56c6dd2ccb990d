"""PPO as the manifest knows it."""

from rljob.algorithms.ppo.parameters import PPOParameters
from rljob.algorithms.ppo.presets import PRESETS
from rljob.api.autoscaling import AutoscalingSpec, ScalingGuards
from rljob.api.declaration import BuiltIn, Computed
from rljob.api.networks import OF_UNROLLS

DECLARED = BuiltIn(
    name="PPO",
    block="ppo",
    about="Hyper-parameters of PPO alone (Schulman et al., 2017, https://arxiv.org/abs/1707.06347).",
    parameters=PPOParameters,
    networks=OF_UNROLLS,
    takes=frozenset({"choices", "controls", "masks", "critic"}),
    defaults={
        (AutoscalingSpec, "max_replicas"): Computed(
            "batchSize / envsPerActor", lambda spec: spec.algorithm.parameters.batch_size // spec.actors.envs_per_actor
        ),
        (ScalingGuards, "max_policy_lag_updates"): Computed(
            "the updates of two iterations", lambda spec: 2 * spec.algorithm.parameters.updates_per_batch
        ),
    },
    presets=PRESETS,
)

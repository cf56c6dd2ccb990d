"""PPO as the manifest knows it."""

from rljob.algorithms.ppo.parameters import PPOParameters
from rljob.algorithms.preset_jobs import PONG_BY_UNROLLS, TWO_THREADS, pong
from rljob.api.declaration import BuiltIn, Computed, Preset
from rljob.api.networks import OF_UNROLLS
from rljob.api.roles import AutoscalingSpec, ScalingGuards

_PPO = {
    "type": "PPO",
    **PONG_BY_UNROLLS,
    "valueCost": 1.0,
    "entropyCost": 0.01,
    "ppo": {"gaeLambda": 0.95, "clipRange": 0.2, "normalizeAdvantages": True},
}
PRESETS = (
    Preset(
        name="PongPPO",
        purpose="Pong on two cores with PPO",
        expected="18 of 21 or more, mean of 100 games; 18.4 measured on one seed",
        time="287 s on two cores, one seed",
        frames="2.9 million",
        raw_frames_to_target=2_900_000,
        source="own search, docs/algorithms/pong-presets.md; loss of Schulman et al. 2017",
        spec={"algorithm": _PPO, **pong(11, TWO_THREADS)},
    ),
    Preset(
        name="PPOVector",
        purpose="PPO for vectors, with discrete or continuous actions",
        expected="LunarLander-v3: 200 or more, mean of 100 games",
        time="LunarLander-v3: about a minute on two cores",
        frames="200,000 to 400,000 for LunarLander-v3, at most 1 million",
        source="own search from RL Baselines3 Zoo's settings for LunarLander",
        example="LunarLander-v3",
        spec={
            "algorithm": {
                "type": "PPO",
                "gamma": 0.999,
                "unrollLength": 128,
                "batchSize": 32,
                "epochs": 6,
                "minibatches": 16,
                "learningRate": 1e-3,
                "learningRateFinal": 1e-4,
                "learningRateDecaySteps": 1_000_000,
                "entropyCost": 0.01,
                "activation": "ReLU",
                "separateCritic": False,
                "ppo": {
                    "gaeLambda": 0.98,
                },
            },
            "actors": {"envsPerActor": 32},
            "evaluator": {"intervalSeconds": 15},
            "successPolicy": {"rawFrames": 1_000_000},
        },
        of_one_environment=False,
    ),
    # What differs from CleanRL: values are not clipped, which hurts more often than it helps, and a game begins with 0 to 29 idle
    # frames, not 1 to 30 (rljob.envs.atari).
    Preset(
        name="PPOAtari",
        purpose="CleanRL's PPO for Atari games, without value clipping",
        expected="not measured",
        time="hours",
        frames="40 million; the learning rate falls to 0",
        source="CleanRL, ppo_atari.py, after Schulman et al. 2017, table 5",
        example="ALE/Breakout-v5",
        spec={
            "algorithm": {
                "type": "PPO",
                "gamma": 0.99,
                "unrollLength": 128,
                "batchSize": 8,
                "epochs": 4,
                "minibatches": 4,
                "learningRate": 2.5e-4,
                "learningRateFinal": 0.0,
                "learningRateDecaySteps": 10_000_000,
                "entropyCost": 0.01,
                "normalizeReturns": False,
                "network": "Nature",
                "hiddenUnits": 512,
                "ppo": {
                    "gaeLambda": 0.95,
                    "clipRange": 0.1,
                    "maxPolicyLag": 0,
                },
            },
            "environment": {"atari": {"lifeLoss": "EndsEpisode", "fireReset": True}},
            "actors": {"envsPerActor": 8},
            "successPolicy": {"rawFrames": 40_000_000},
        },
        of_one_environment=False,
    ),
    Preset(
        name="PPOMuJoCo",
        purpose="PPO for robots with continuous actions, such as MuJoCo's: normalised observations and returns, separate critic",
        expected="HalfCheetah-v5: 6,600, mean of 20 games, one seed",
        time="ten minutes on two shared cores",
        frames="1 million; the learning rate falls to 0",
        source="own search from CleanRL's ppo_continuous_action.py and Tianshou's recomputed advantages",
        example="HalfCheetah-v5",
        spec={
            "algorithm": {
                "type": "PPO",
                "gamma": 0.99,
                "unrollLength": 128,
                "batchSize": 16,
                "epochs": 10,
                "minibatches": 32,
                "learningRate": 3e-4,
                "learningRateFinal": 0.0,
                "learningRateDecaySteps": 1_000_000,
                "logStdInit": -1.0,  # at 0 most draws of six joints are at their bounds: a quarter of the return
                "ppo": {
                    "gaeLambda": 0.95,
                    "recomputeAdvantages": True,
                },
            },
            "actors": {"envsPerActor": 16},
            "evaluator": {"episodes": 20, "intervalSeconds": 60},
            "successPolicy": {"rawFrames": 1_000_000},
        },
        of_one_environment=False,
    ),
)


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
    in_turns={"algorithm.ppo.maxPolicyLag": 0},
)

"""SAC as the manifest knows it."""

from rljob.algorithms.sac.parameters import SACParameters
from rljob.api.declaration import BuiltIn, Computed, Preset
from rljob.api.environment import EnvironmentSource
from rljob.api.networks import OF_TRANSITIONS
from rljob.api.replay import Prioritization, RateLimiter, ReplaySpec

PRESETS = (
    Preset(
        name="SACVector",
        purpose="SAC for vectors and continuous actions, if steps cost more than updates",
        expected="LunarLanderContinuous-v3: 216 to 266 in four runs, -10 in a fifth",
        time="LunarLanderContinuous: a quarter of an hour on two cores",
        frames="150,000",
        source="RL Baselines3 Zoo's settings for LunarLanderContinuous",
        example="LunarLanderContinuous-v3",
        spec={
            "algorithm": {
                "type": "SAC",
                "gamma": 0.99,
                "learningRate": 7.3e-4,
                "learningRateFinal": 0.0,
                "learningRateDecaySteps": 500_000,
                "targetUpdateTau": 0.01,
            },
            "replay": {"rateLimiter": {"minSize": 10_000}},
            "actors": {"envsPerActor": 4},
            "evaluator": {"episodes": 20, "intervalSeconds": 60},
            "successPolicy": {"rawFrames": 150_000},
        },
        of_one_environment=False,
    ),
    Preset(
        name="SACMuJoCo",
        purpose="SAC for robots with continuous actions, such as MuJoCo's: an update a step",
        expected="HalfCheetah-v5: 6,600 after 100,000 steps, one seed; 9,600 is published for 1 million",
        time="two to three hours on two cores; a quarter of an hour for 100,000 steps",
        frames="1 million",
        source="CleanRL's sac_continuous_action.py and RL Baselines3 Zoo, with CleanRL's critic rate 1e-3",
        example="HalfCheetah-v5",
        spec={
            "algorithm": {"type": "SAC", "gamma": 0.99, "learningRate": 3e-4, "sac": {"criticLearningRate": 1e-3}},
            "replay": {"rateLimiter": {"minSize": 5_000}},
            "actors": {"envsPerActor": 4},
            "evaluator": {"episodes": 10, "intervalSeconds": 120},
            "successPolicy": {"rawFrames": 1_000_000},
        },
        of_one_environment=False,
    ),
)


DECLARED = BuiltIn(
    name="SAC",
    block="sac",
    about="Hyper-parameters of SAC alone (Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905).",
    parameters=SACParameters,
    networks=OF_TRANSITIONS,
    takes=frozenset({"controls", "controls alone", "critic"}),
    from_replay=True,
    elsewhere=("SoftActorCritic",),
    defaults={
        (EnvironmentSource, "actions"): "Squashed",
        (ReplaySpec, "capacity"): 1_000_000,
        (Prioritization, "exponent"): 0.0,
        (RateLimiter, "samples_per_insert"): Computed(
            "batchSize, an update a step", lambda spec: float(spec.algorithm.parameters.batch_size)
        ),
        (RateLimiter, "min_size"): 5_000,
    },
    presets=PRESETS,
    in_turns={"algorithm.prefetchBatches": 0, "actors.envsPerActor": 1, "replay.shards": 1},
)

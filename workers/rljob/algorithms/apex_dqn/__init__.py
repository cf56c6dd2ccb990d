"""ApeXDQN as the manifest knows it."""

from rljob.algorithms.apex_dqn.parameters import ApeXDQNParameters
from rljob.algorithms.preset_jobs import CARTPOLE, ONE_CORE, cpu_request, pong
from rljob.api.declaration import BuiltIn, Preset
from rljob.api.networks import OF_TRANSITIONS

_APEX = {
    "type": "ApeXDQN",
    "gamma": 0.99,
    "nStep": 10,  # a point is many steps away from the stroke that wins it
    "batchSize": 128,
    "optimizer": "Adam",
    "learningRate": 1e-3,
    "learningRateFinal": 3e-4,
    "learningRateDecaySteps": 300_000,
    "optimizerEpsilon": 1e-6,
    "gradientClipNorm": 10.0,
    "targetUpdateInterval": 200,
    "network": "Compact",
    "hiddenUnits": 128,
    "layerNorm": True,  # the strongest single help at this size
    "evaluationWeightsDecay": 0.998,
    "chunkLength": 50,
    "publishInterval": 10,
    "precision": "FP32",
    "apeXDQN": {
        "double": True,
        "dueling": True,
        "loss": "Huber",
        "epsilonBase": 0.4,
        "epsilonExponent": 7.0,
        "evaluationEpsilon": 0.01,
    },
}

PRESETS = (
    Preset(
        name="PongApeX",
        purpose="Pong on two cores with Ape-X DQN",
        expected="18 of 21 or more, mean of an evaluation",
        time="456 and 1,083 s on two cores, two of three seeds; the third had not reached it after 900 s",
        frames="1 to 2 million",
        source="own search, docs/algorithms/pong-presets.md",
        spec={
            "algorithm": _APEX,
            **pong(16, ONE_CORE),
            "replay": {
                "capacity": 100_000,  # older experience slows learning down with such long returns
                "prioritization": {"exponent": 0.5, "importance": 0.4},
                "rateLimiter": {"samplesPerInsert": 6, "minSize": 8000, "errorBuffer": 9600},
            },
        },
    ),
    Preset(
        name="CartPoleApeX",
        purpose="CartPole with Ape-X DQN and the replay service",
        expected="475 of 500 or more, mean of 100 episodes",
        time="one to four minutes on two cores",
        frames="240,000",
        raw_frames_to_target=240_000,
        source="own search",
        spec={
            "algorithm": {
                "type": "ApeXDQN",
                "gamma": 0.99,
                "nStep": 3,
                "batchSize": 128,
                "optimizer": "Adam",
                "learningRate": 1e-3,
                "learningRateFinal": 1e-4,
                "learningRateDecaySteps": 60_000,
                "optimizerEpsilon": 1e-8,
                "gradientClipNorm": 10.0,
                "targetUpdateInterval": 200,
                "network": "MLP",
                "hiddenUnits": 128,
                "evaluationWeightsDecay": 0.99,
                "chunkLength": 20,
                "publishInterval": 10,
                "apeXDQN": {
                    "double": True,
                    "dueling": True,
                    "loss": "Huber",
                    "epsilonBase": 0.4,
                    "epsilonExponent": 7.0,
                    "evaluationEpsilon": 0.0,
                },
            },
            "replay": {
                "capacity": 50_000,
                "prioritization": {"exponent": 0.5, "importance": 0.4},
                "rateLimiter": {"samplesPerInsert": 8, "minSize": 1000, "errorBuffer": 8000},
                **cpu_request("100m"),
            },
            "actors": {"envsPerActor": 8, **cpu_request("250m")},
            **CARTPOLE,
        },
    ),
    # What differs from the paper: actors fetch weights every publishInterval updates, not every 400 frames; the ladder of
    # epsilons is over environments, of which an actor has several; the gradient of the two streams is not scaled down where they
    # meet. Left to the hardware, as in the paper: as many samples an insert as it gave (19 batches for 12,500 transitions a
    # second: 0.8).
    Preset(
        name="ApeXAtari",
        purpose="Ape-X DQN as published for Atari games, for a GPU and many actors",
        expected="not measured",
        time="hours to days",
        frames="200 million",
        source="Horgan et al. 2018, section 3.1 and appendix C; learning rate .00025 / 4",
        spec={
            "algorithm": {
                "type": "ApeXDQN",
                "gamma": 0.99,
                "nStep": 3,
                "batchSize": 512,
                "optimizer": "CentredRMSProp",
                "learningRate": 6.25e-5,
                "rmspropDecay": 0.95,
                "optimizerEpsilon": 1.5e-7,
                "gradientClipNorm": 40.0,
                "targetUpdateInterval": 2500,
                "network": "Nature",
                "chunkLength": 50,
                "apeXDQN": {
                    "double": True,
                    "dueling": True,
                    "loss": "MSE",
                    "epsilonBase": 0.4,
                    "epsilonExponent": 7.0,
                },
            },
            "environment": {"id": "ALE/Pong-v5"},
            "replay": {
                "capacity": 2_000_000,
                "prioritization": {"exponent": 0.6, "importance": 0.4},
                "rateLimiter": {"minSize": 50_000},
            },
            "successPolicy": {"rawFrames": 200_000_000},
        },
        of_one_environment=False,
    ),
)


DECLARED = BuiltIn(
    name="ApeXDQN",
    block="apeXDQN",
    about="Hyper-parameters of ApeXDQN alone (Horgan et al., 2018, https://arxiv.org/abs/1803.00933).",
    parameters=ApeXDQNParameters,
    networks=OF_TRANSITIONS,
    takes=frozenset({"choices", "masks"}),
    from_replay=True,
    elsewhere=("DQN",),
    presets=PRESETS,
)

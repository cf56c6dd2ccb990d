"""CartPole: four numbers and two actions, learned by a small MLP on one core. The shortest way to see every part work."""

from __future__ import annotations

from typing import Any

from rljob.api.presets.preset import Preset


def _cpu(request: str) -> dict[str, Any]:
    """The part of a core that a role asks for: all together about one, so that a node with two has room. None is limited."""
    return {"resources": {"requests": {"cpu": request}}}


_JOB: dict[str, Any] = {
    "learner": _cpu("400m"),
    "environment": {"id": "CartPole-v1"},
    "evaluator": {"intervalSeconds": 5, "triggerReturn": 300, **_cpu("150m")},
    "checkpoint": {"intervalSeconds": 30, "retain": 2},
    "successPolicy": {"targetReturn": {"value": 475}},  # what Gymnasium calls solved: the mean of 100 episodes
    "activeDeadlineSeconds": 900,
}

CARTPOLE_APEX = Preset(
    name="CartPoleApeX",
    purpose="CartPole with Ape-X DQN, to see the replay service work",
    expected="475 of 500 or more, the mean of 100 episodes",
    time="one to four minutes on two cores",
    frames="240,000",
    raw_frames_to_target=240_000,
    source="found here",
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
            **_cpu("100m"),
        },
        "actors": {"envsPerActor": 8, **_cpu("250m")},
        **_JOB,
    },
)
CARTPOLE_IMPALA = Preset(
    name="CartPoleIMPALA",
    purpose="CartPole with IMPALA, to see the learner's queue of unrolls work",
    expected="475 of 500 or more, the mean of 100 episodes",
    time="half a minute to five on two cores",
    frames="450,000",
    raw_frames_to_target=450_000,
    source="found here",
    spec={
        "algorithm": {
            "type": "IMPALA",
            "gamma": 0.99,
            "unrollLength": 20,
            "batchSize": 16,
            "epochs": 1,
            "minibatches": 1,
            "valueCost": 0.5,
            "entropyCost": 0.01,
            "optimizer": "Adam",
            "learningRate": 1e-3,
            "optimizerEpsilon": 1e-5,
            "gradientClipNorm": 0.5,
            "network": "MLP",
            "hiddenUnits": 64,
            "orthogonalInit": True,
            "recurrent": "None",
            "evaluationTemperature": 0.0,
            "precision": "FP32",
            "impala": {
                "lossReduction": "Mean",
            },
        },
        "actors": {"envsPerActor": 16, **_cpu("400m")},
        **_JOB,
    },
)

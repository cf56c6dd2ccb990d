"""Pong in minutes on two cores, without a GPU. How these values were found: docs/algorithms/pong-presets.md."""

from __future__ import annotations

from typing import Any

from rljob.api.presets.preset import Preset

_ENVIRONMENT = {
    "id": "ALE/Pong-v5",
    "atari": {"frameSize": 42},  # a quarter of the pixels of the usual 84x84
    "centreInput": True,  # subtract the mean frame, so that only what moves is left
    "inputScale": 0.041666667,  # 1/24: what is left after centring is small
    "actions": [0, 2, 3],  # stay, up, down; the other three do the same with FIRE
}
_ONE_CORE = {"requests": {"cpu": "1", "memory": "1Gi"}}
_TWO_THREADS = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}


def _job(trigger_return: float, actor_resources: dict[str, Any], interval_seconds: int = 60) -> dict[str, Any]:
    """What all of them have beside their algorithm. Training games are played more at random than judged ones, so judging begins
    (``trigger_return``) well below what is asked for."""
    return {
        "environment": _ENVIRONMENT,
        "learner": {"resources": {"requests": {"cpu": "1", "memory": "2Gi"}}},
        "actors": {"envsPerActor": 16, "resources": actor_resources},
        "evaluator": {"resources": _TWO_THREADS, "intervalSeconds": interval_seconds, "triggerReturn": trigger_return},
        "checkpoint": {"intervalSeconds": 60, "retain": 3},
        "successPolicy": {"targetReturn": {"value": 18}},
        "activeDeadlineSeconds": 3600,
    }


_NETWORK: dict[str, Any] = {
    "gamma": 0.99,
    "unrollLength": 128,
    "batchSize": 16,  # 2,048 steps ...
    "epochs": 6,  # ... gone over six times ...
    "minibatches": 8,  # ... in eight updates each
    "optimizer": "Adam",
    "learningRate": 1e-3,
    "learningRateFinal": 2e-4,
    "learningRateDecaySteps": 500_000,
    "optimizerEpsilon": 1e-5,
    "gradientClipNorm": 0.5,
    "network": "Compact",
    "hiddenUnits": 128,
    "orthogonalInit": True,
    "recurrent": "None",
    "evaluationTemperature": 0.25,
    "evaluationWeightsDecay": 0.998,
    "precision": "FP32",  # bf16 gains nothing on so small a network
}
_VTRACE = {
    "type": "IMPALA",
    **_NETWORK,
    "valueCost": 0.25,  # all costs are a quarter of PPO's, because nothing normalises the advantages
    "entropyCost": 0.0025,
    "publishInterval": 8,
    "prefetchBatches": 1,
    "impala": {
        "lossReduction": "Mean",
        "targetPolicyKl": 0.02,
        "rhoClip": 1.0,
        "cClip": 1.0,
        "vtraceLambda": 0.98,  # a rally lasts a hundred steps: credit must reach far back
        "policyKlCost": 0.25,  # keeps the policy near the one that acted; without it actions that were rare run away
        "weightsRefreshSteps": 8,  # newer weights inside an unroll, and after every pass
        "unrollQueue": {"capacity": 16},  # one batch
    },
}
_PPO = {
    "type": "PPO",
    **_NETWORK,
    "valueCost": 1.0,
    "entropyCost": 0.01,
    "ppo": {"gaeLambda": 0.95, "clipRange": 0.2, "normalizeAdvantages": True},
}
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

PONG_VTRACE = Preset(
    name="PongVTrace",
    purpose="The quickstart: Pong on two cores with IMPALA's V-trace, in several passes over each batch",
    expected="18 of 21 or more, the mean of 100 games; 17.4 to 19.3 measured on five seeds",
    time="120 to 359 s on two cores, median 187 of nine seeds; one of them was not there after 480",
    frames="1.2 million",
    raw_frames_to_target=1_200_000,
    source="found here, docs/algorithms/pong-presets.md",
    # Judged at training returns of 2 to 9, ten policies of five seeds had 6 to 19 points, one of them more than 18; from 11 on
    # four had 17.8 to 19.7. What falls short costs a minute or two of training.
    spec={"algorithm": _VTRACE, **_job(11, _TWO_THREADS, interval_seconds=30)},
)
PONG_PPO = Preset(
    name="PongPPO",
    purpose="Pong on two cores with PPO",
    expected="18 of 21 or more, the mean of 100 games; 18.4 measured on one seed",
    time="287 s on two cores, one seed",
    frames="2.9 million",
    raw_frames_to_target=2_900_000,
    source="found here, docs/algorithms/pong-presets.md; the loss is that of Schulman et al. 2017",
    spec={"algorithm": _PPO, **_job(11, _TWO_THREADS)},
)
PONG_APEX = Preset(
    name="PongApeX",
    purpose="Pong on two cores with Ape-X DQN: prioritized replay, long returns, a small normalised network",
    expected="18 of 21 or more, the mean of the games of an evaluation",
    time="456 and 1,083 s on two cores, two of three seeds; one was not there after 900 s",
    frames="1 to 2 million",
    source="found here, docs/algorithms/pong-presets.md",
    spec={
        "algorithm": _APEX,
        **_job(16, _ONE_CORE),
        "replay": {
            "capacity": 100_000,  # older experience slows learning down with such long returns
            "prioritization": {"exponent": 0.5, "importance": 0.4},
            "rateLimiter": {"samplesPerInsert": 6, "minSize": 8000, "errorBuffer": 9600},
        },
    },
)

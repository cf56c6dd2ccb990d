"""What presets of several algorithms have in common: CartPole and Pong as jobs, without what learns them. How the values for Pong
were found: docs/algorithms/pong-presets.md."""

from typing import Any


def cpu_request(request: str) -> dict[str, Any]:
    """The part of a core that a role asks for: all together about one, so that a node with two has room. None is limited."""
    return {"resources": {"requests": {"cpu": request}}}


CARTPOLE: dict[str, Any] = {
    "learner": cpu_request("400m"),
    "environment": {"id": "CartPole-v1"},
    "evaluator": {"intervalSeconds": 5, "triggerReturn": 300, **cpu_request("150m")},
    "checkpoint": {"intervalSeconds": 30, "retain": 2},
    "successPolicy": {"targetReturn": {"value": 475}},  # what Gymnasium calls solved: the mean of 100 episodes
    "activeDeadlineSeconds": 900,
}

_PONG = {
    "id": "ALE/Pong-v5",
    "atari": {"frameSize": 42},  # a quarter of the pixels of the usual 84x84
    "centreInput": True,  # subtract the mean frame, so that only what moves is left
    "inputScale": 0.041666667,  # 1/24: what is left after centring is small
    "actions": [0, 2, 3],  # stay, up, down; the other three do the same with FIRE
}
ONE_CORE = {"requests": {"cpu": "1", "memory": "1Gi"}}
TWO_THREADS = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}


def pong(trigger_return: float, actor_resources: dict[str, Any], interval_seconds: int = 60) -> dict[str, Any]:
    """What all of them have beside their algorithm. Training games are played more at random than judged ones, so judging begins
    (``trigger_return``) well below what is asked for."""
    return {
        "environment": _PONG,
        "learner": {"resources": {"requests": {"cpu": "1", "memory": "2Gi"}}},
        "actors": {"envsPerActor": 16, "resources": actor_resources},
        "evaluator": {"resources": TWO_THREADS, "intervalSeconds": interval_seconds, "triggerReturn": trigger_return},
        "checkpoint": {"intervalSeconds": 60, "retain": 3},
        "successPolicy": {"targetReturn": {"value": 18}},
        "activeDeadlineSeconds": 3600,
    }


PONG_BY_UNROLLS: dict[str, Any] = {
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
"""Parameters of the algorithms that learn it from unrolls."""

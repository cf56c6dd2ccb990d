"""The six rungs of the published ladder, and what all of them learn with here.

The ladder is chapter 9 of M. Lapan, Deep Reinforcement Learning Hands-On, second edition (2020): DQN on Pong at 84x84 with a
GPU. A frame is an agent step, there and here: four raw frames of the emulator. Here frames are 42x42 and the network is
``Compact``, so frames/s do not compare with the published ones, but what a rung gains does.

Two rungs have a process for acting and one for training. There they share the network's memory and a queue of eight
transitions that is emptied before each batch of 128: about eight frames a batch where training is the slower side. Here they
are `rljob run` with one actor, whose rate limiter holds to the 16 samples a frame that this comes to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rljob.api import ApeXDQNParameters, EnvironmentParameters
from rljob.api.algorithm import SHARED

GAME: Final = "ALE/Pong-v5"
CAPACITY: Final = 100_000
FILL: Final = 10_000
"""Frames before the first update, as published."""
EPSILON_FRAMES: Final = 100_000
LEAST_EPSILON: Final = 0.02
SOLVED: Final = 17.0
"""Mean return of the last ``GAMES`` training games at which the published code ends."""
GAMES: Final = 100

_LEARNING: Final = {
    "gamma": 0.99,
    "nStep": 1,
    "optimizer": "Adam",
    "learningRate": 1e-4,
    "optimizerEpsilon": 1e-8,
    "gradientClipNorm": 0,
    "targetUpdateInterval": 1000,
    "double": False,
    "dueling": False,
    "loss": "MSE",
    "network": "Compact",
    "layerNorm": True,  # ours, as are centreInput and the three actions: 42x42 is not learned from without
    "chunkLength": 10,
    "precision": "FP32",
    # Where acting is apart: 0.1, 0.045 and 0.02 of three environments. They don't fall; the published ones stay at the last.
    "epsilonBase": 0.1,
    "epsilonExponent": 0.7,
    "compile": False,  # gains nothing on this network, and the compiler would run beside the measured window
}
_SEEN: Final = {"actions": [0, 2, 3], "centreInput": True, "inputScale": 0.041666667}
_PLAIN: Final = {"backend": "Sync", "frameStack": 4, "atari": {"frameSize": 42}}
# As published: no idle frames at a start, no maximum over two raw frames, two frames in a stack. Ours: all of it in C++.
_TENSORS: Final = {"backend": "Native", "frameStack": 2, "atari": {"frameSize": 42, "noopMax": 0, "maxPool": False}}


@dataclass(frozen=True, slots=True)
class Rung:
    """``published``: frames/s and minutes to solved; None for a rung of our own. ``batch_size``: of an update, one of which
    follows each step of all ``environments``; where acting is ``apart``, as ``samples_per_frame`` allows.
    ``keeps_graphs``: without ``torch.no_grad``. ``tensors``: the wrappers that give tensors' memory."""

    name: str
    told: str
    published: tuple[float, float] | None
    environments: int = 1
    batch_size: int = 32
    keeps_graphs: bool = False
    tensors: bool = False
    apart: bool = False
    samples_per_frame: float = 32.0
    is_control: bool = False
    """Not a step of the ladder: the next rung is compared with the one before."""


LADDER: Final = (
    Rung("synchronous", "synchronous loop", (159, 105)),
    Rung("graphs", "the same without `no_grad` (control)", (157, 115), keeps_graphs=True, is_control=True),
    Rung("several", "three environments, batches of 96", (228, 44), 3, 96),
    Rung("apart", "acting apart from training, batches of 128", (402, 59), 3, 128, apart=True, samples_per_frame=16),
    Rung("several-tensors", "three environments, wrappers on tensors", (330, 40), 3, 96, tensors=True),
    Rung(
        "apart-tensors",
        "acting apart, wrappers on tensors",
        (409, 31),
        3,
        128,
        tensors=True,
        apart=True,
        samples_per_frame=16,
    ),
)
"""In the published order."""
LAST_AT_32: Final = Rung(
    "apart-tensors-32",
    "the last, with as many samples a frame as the first",
    None,
    3,
    128,
    tensors=True,
    apart=True,
    is_control=True,
)
"""What the last rung owes to drawing half as many samples for a frame."""
MEASURED: Final = (*LADDER, LAST_AT_32)


def environment(rung: Rung) -> dict[str, Any]:
    """``spec.environment`` without its id."""
    return {**_SEEN, **(_TENSORS if rung.tensors else _PLAIN)}


def environment_parameters(rung: Rung) -> EnvironmentParameters:
    return EnvironmentParameters.model_validate(environment(rung))


def learning_parameters(rung: Rung) -> ApeXDQNParameters:
    return ApeXDQNParameters.model_validate({**_LEARNING, "batchSize": rung.batch_size})


def job(rung: Rung, seed: int, fill: int) -> dict[str, Any]:
    """The manifest of a rung whose acting is apart."""
    learning = {**_LEARNING, "batchSize": rung.batch_size}
    return {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "metadata": {"name": f"ladder-{rung.name}"},
        "spec": {
            "algorithm": {
                "type": "ApeXDQN",
                **{name: value for name, value in learning.items() if name in SHARED},
                "apeXDQN": {name: value for name, value in learning.items() if name not in SHARED},
            },
            "seed": seed,
            "environment": {"id": GAME, **environment(rung)},
            "replay": {
                "capacity": CAPACITY,
                "prioritization": {"exponent": 0, "importance": 0},
                "rateLimiter": {
                    "samplesPerInsert": rung.samples_per_frame,
                    "minSize": fill,
                    "errorBuffer": 20 * rung.batch_size,
                },
            },
            "learner": {"resources": {"requests": {"cpu": "1"}}},  # the actor takes the other core
            "actors": {"replicas": 1, "envsPerActor": rung.environments},
            "evaluator": {"enabled": False},
            "checkpoint": {"intervalSeconds": 600},
        },
    }


def epsilon(frames: int) -> float:
    """The share of random actions ``frames`` after the first update."""
    return max(LEAST_EPSILON, 1.0 - frames / EPSILON_FRAMES)

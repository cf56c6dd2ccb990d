"""Step 7, a minute: games simulated on the GPU that they are acted on, copied to the host once an unroll or at every step.

The example's CartPole in torch and a small network, with weights, recorded as an actor records and sent nowhere. The line
``an unroll against a step`` has the ratio of the two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rljob.acting import ActorIdentity
from rljob.actor.device import DeviceEnvironment, DevicePolicy
from rljob.actor.device_loop import DeviceLoop
from rljob.actor.figures import ActorFigures
from rljob.algorithms.impala.loss import IMPALA
from rljob.api import EnvironmentParameters, ImpalaParameters
from rljob.envs import describe_environment, make_device_vector
from rljob.experience import make_builder
from rljob.weights.flat import snapshot

from benchmarks.gpu.bench import begin, options, rate

ENVIRONMENTS = (256, 1024, 4096)
UNROLL = 20
GAME = f"{Path(__file__).parents[2] / 'examples' / 'plugins' / 'torch_cartpole.py'}:make"


class Nowhere:
    """A sink that lets everything go, and weights that never come anew."""

    welcome = None
    waiting = 0
    least_version = None

    def encode(self, chunk: object) -> None: ...
    def episodes(self, message: object) -> None: ...
    def poll(self, timeout_seconds: float = 0.0) -> None: ...


def main() -> None:
    arguments = options(__doc__, 60.0).parse_args()
    figures = begin("simulation", arguments, packages=["gymnasium"])
    device = torch.device(arguments.device)
    counts = ENVIRONMENTS if device.type == "cuda" else (8,)
    each = arguments.seconds / (2 * len(counts))
    for count in counts:
        found: dict[int, float] = {}
        for every in (UNROLL, 1):
            about = {"environments": count, "copied_every": every}
            with figures.trying("steps", **about):
                found[every] = count * every * rate(turn_of(count, every, arguments.device), each, device)
                figures.write("steps", **about, steps_per_second=found[every])
        if len(found) == 2:
            figures.write("an unroll against a step", environments=count, ratio=found[UNROLL] / found[1])


def turn_of(count: int, every: int, device: str) -> Callable[[], None]:
    """A turn of an actor's loop: ``every`` steps of ``count`` games, and their way to the host."""
    env_params = EnvironmentParameters(kwargs={"device": device})
    params = ImpalaParameters.model_validate({"network": "MLP", "hidden_units": 64, "unroll_length": UNROLL})
    spec, method = describe_environment(GAME, env_params), IMPALA()
    vector = make_device_vector(spec, env_params, count)
    assert vector is not None
    environment = DeviceEnvironment(vector, 0)
    policy = DevicePolicy(method, spec, params, env_params, count, environment.device, 0)
    policy.load(snapshot(method.build(spec, params, env_params), 1, 0, {}))
    recorder = make_builder(method.layout(spec, params), count, 0.99, False, "actor-0", "benchmark", 0)
    nowhere: Any = Nowhere()
    figures = ActorFigures(ActorIdentity("actor-0", "benchmark", count))
    loop = DeviceLoop(environment, policy, recorder, nowhere, nowhere, figures, every)
    loop.start()
    never = threading.Event()
    return lambda: loop.turn(never)


if __name__ == "__main__":
    main()

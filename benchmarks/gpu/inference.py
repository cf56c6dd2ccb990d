"""Step 5, two minutes: actions computed centrally on the GPU, against every core computing its own.

Central: the served network on the GPU, asked for 64 observations (and for other batch sizes) by its own loop, without sockets:
what a server could reach. Local: one process a core, each with its share of the 64 environments, the way that this processor
computes fastest. Both for the small network and the Nature one; the line ``central against local`` has the ratio.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

import numpy as np
import torch
from rljob.acting.network import acting_copy, choose_compute
from rljob.algorithms.compute import Compute, DeviceCompute, Measured, native_arithmetic
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters
from rljob.inference.model import Request, ServedModel

from benchmarks.gpu.bench import Figures, begin, options, rate
from benchmarks.gpu.learner_alone import spec

ENVIRONMENTS = 64
BATCHES = (1, 4, 16, 64, 256)
NETWORKS: dict[str, tuple[int, dict[str, Any]]] = {
    "small": (42, {"network": "Compact", "layer_norm": True}),
    "Nature": (84, {"network": "Nature"}),
}


def main() -> None:
    arguments = options(__doc__, 110.0).parse_args()
    figures = begin("inference", arguments, packages=["pydantic"])
    device = torch.device(arguments.device)
    cuda = device.type == "cuda"
    cores = len(os.sched_getaffinity(0)) if cuda else 1
    networks = NETWORKS if cuda else {"small": NETWORKS["small"]}
    batches, environments = (BATCHES, ENVIRONMENTS) if cuda else ((1, 4), 4)
    each = arguments.seconds / len(networks) / (3 * len(batches) + 4)
    for name in networks:
        best = 0.0
        for arithmetic in native_arithmetic(device):
            if arithmetic == "fp16":
                continue
            for batch in batches:
                about = {"network": name, "arithmetic": arithmetic, "batch": batch}
                with figures.trying("central", **about):
                    found = central(name, Compute(arithmetic, channels_last=True), batch, device, each)
                    figures.write("central", **about, observations_per_second=found, milliseconds=1e3 * batch / found)
                    best = max(best, found) if batch == environments else best
        with figures.trying("local", network=name):
            against(figures, name, cores, environments, best, 2 * each)


def central(name: str, plan: Compute, batch: int, device: torch.device, seconds: float) -> float:
    """Observations a second of the served network in batches of this size, copies to and from the device included."""
    side, values = NETWORKS[name]
    frames, method = spec(side), algorithm("ApeXDQN")
    params = ApeXDQNParameters.model_validate(values)
    torch.manual_seed(0)
    network: Any = method.build(frames, params, EnvironmentParameters())
    model = ServedModel(network, frames, method, 0, Measured(DeviceCompute(device, plan), {}), batch)
    shown = np.random.default_rng(0).integers(0, 255, (batch, *frames.observation_shape), np.uint8)
    request = Request("benchmark", "", 0, 0, shown, np.zeros((batch, 2, 0), np.float32), 0.0)
    return batch * rate(lambda: model.evaluate([request]), seconds, device)


def against(figures: Figures, name: str, cores: int, environments: int, best: float, seconds: float) -> None:
    """Let every core compute its share by itself, and write the sum beside what the central one reached."""
    context = multiprocessing.get_context("spawn")
    share = max(1, environments // cores)
    answers = context.Queue()
    processes = [
        context.Process(target=local, args=(name, share, number, seconds, answers), daemon=True)
        for number in range(cores)
    ]
    for process in processes:
        process.start()
    found = [answers.get(timeout=120.0) for _ in processes]
    for process in processes:
        process.join(10.0)
    whole = sum(each for each, _ in found)
    figures.write("local", network=name, processes=cores, batch=share, observations_per_second=whole, plan=found[0][1])
    figures.write("central against local", network=name, ratio=best / whole if whole else None, batch=environments)


def local(name: str, batch: int, core: int, seconds: float, answers: Any) -> None:
    """A process of its own: observations a second on one core, and how it computes."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
    torch.set_num_threads(1)
    side, values = NETWORKS[name]
    torch.manual_seed(0)
    frames, method = spec(side), algorithm("ApeXDQN")
    params = ApeXDQNParameters.model_validate(values)
    network: Any = method.build(frames, params, EnvironmentParameters())
    shown = torch.randint(0, 255, (batch, *frames.observation_shape), dtype=torch.uint8)
    plan = choose_compute(network, method.infer, shown, 0, "Auto").place.compute
    acting = acting_copy(network, plan)
    observation, memory = shown, torch.zeros(batch, 2, 0)
    with torch.inference_mode():
        method.infer(acting, observation, memory)
        calls, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            method.infer(acting, observation, memory)
            calls += 1
    answers.put((batch * calls / (time.perf_counter() - start), str(plan)))


if __name__ == "__main__":
    main()

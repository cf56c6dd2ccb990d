"""SAC's update alone on one core, at HalfCheetah's sizes and a batch of 256, beside the peers' ``train``.

Rounds alternate between all of them, each peer in a process of its own. Ours learns from one batch in memory, so that what
drawing one costs is the peers' alone: for Stable-Baselines3 under a hundredth of an update. One JSON line a result.

    python -m benchmarks.sac_update --sb3-python SB3/bin/python --sbx-python SBX/bin/python

The peers' environments are those of ``sac_peers.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.compute import native_arithmetic
from rljob.algorithms.registry import algorithm
from rljob.api import EnvironmentParameters, SACParameters
from rljob.envs import EnvironmentSpec, describe_environment
from rljob.learner.device import keep_freed_memory
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.learner.optim.updater import TransitionUpdater

from benchmarks.common import machine, report

PEER = Path(__file__).resolve().parent / "peers" / "sb3_sac_update.py"
ENVIRONMENT = "HalfCheetah-v5"
BATCH = 256
WARM_UP = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python")
    parser.add_argument("--sbx-python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="that each is timed for in a round")
    options = parser.parse_args()
    report("machine", **machine())
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    keep_freed_memory()  # as the learner does
    updates = ours()
    peers = {"stable_baselines3": options.sb3_python, "sbx": options.sbx_python}
    rates: dict[str, list[float]] = defaultdict(list)
    for number in range(options.rounds):
        found = {name: timed(update, options.seconds) for name, update in updates.items()}
        for module, python in peers.items():
            if python:
                for name, rate in peer(python, module, options.seconds).items():
                    found[f"{module} {name}"] = rate
        report("sac_update_round", number=number, **found)
        for name, rate in found.items():
            rates[name].append(rate)
    report("sac_update", batch=BATCH, **{name: statistics.median(each) for name, each in rates.items()})


def ours() -> dict[str, Callable[[], object]]:
    """An update, with noise of its own, in each arithmetic that ``precision: Auto`` chooses from on this machine."""
    cpu = torch.device("cpu")
    env_params, params = EnvironmentParameters(actions="Squashed"), SACParameters(batch_size=BATCH)
    spec = describe_environment(ENVIRONMENT, env_params)
    method = algorithm("SAC")
    plans = method.build_learner(spec, params, env_params).compute_plans("Auto", native=native_arithmetic(cpu))
    batch, updates = batch_of(spec), {}
    for plan in plans:
        torch.manual_seed(0)
        network = method.build_learner(spec, params, env_params).compute(plan)
        updater = TransitionUpdater(method, params, network, cpu, DataParallelThreads(1))
        updates[f"ours {plan}"] = partial(updater.update, batch, 0)
        for _ in range(WARM_UP):
            updater.update(batch, 0)
    return updates


def batch_of(spec: EnvironmentSpec) -> TransitionBatch:
    return TransitionBatch(
        observation=torch.randn(BATCH, *spec.observation_shape),
        next_observation=torch.randn(BATCH, *spec.observation_shape),
        action=torch.zeros(BATCH, 0, dtype=torch.int64),
        n_step_return=torch.randn(BATCH),
        discount=torch.full((BATCH,), 0.99),
        weight=torch.ones(BATCH),
        control=torch.randn(BATCH, spec.controls),
    )


def timed(update: Callable[[], object], seconds: float) -> float:
    """Calls a second."""
    calls, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        update()
        calls += 1
    return calls / elapsed


def peer(python: str, module: str, seconds: float) -> dict[str, float]:
    """Updates a second of the peer by how many it makes in a call. Raises CalledProcessError where it fails."""
    words = ["--module", module, "--environment", ENVIRONMENT, "--batch", str(BATCH), "--seconds", str(seconds)]
    done = subprocess.run([python, str(PEER), *words], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()

"""Steps per second of each environment backend, one JSON line a result.

    python -m benchmarks.env_backends [--seconds 3] [--environments 16]

Uniformly random actions, no policy: what the environments alone can deliver. ``direct`` lines are the library's own vector
environment without this project around it, in the same run, so that the cost of our adapter can be read off. Lines of EnvPool are
there where ``rljob[envpool]`` is installed.
``cpu_seconds_per_second`` counts this process and its workers: 1.0 is one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import psutil
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from rljob.api import EnvironmentParameters
from rljob.envs import make_vector_environment
from rljob.threads import usable_cores

from benchmarks.common import machine, report

CASES = {
    "ALE/Pong-v5": ("Native", "Sync", "Async", "EnvPool"),
    "ALE/Breakout-v5": ("Native", "Sync", "Async", "EnvPool"),
    "CartPole-v1": ("Native", "Sync", "Async", "EnvPool"),
    "LunarLander-v3": ("Sync", "Async", "EnvPool"),
}


def cpu_seconds() -> float:
    """User and system time of this process and of its living descendants."""
    total = 0.0
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def measure(step: Callable[[np.ndarray], Any], num_envs: int, num_actions: int, seconds: float) -> dict[str, float]:
    """Warm up for a fifth of the time, then count steps (of single environments) per second."""
    actions = np.random.default_rng(0).integers(0, num_actions, (1024, num_envs))
    began, cpu, turns, warm = time.perf_counter(), 0.0, 0, False
    while True:
        for i in range(16):
            step(actions[(turns + i) % len(actions)])
        turns += 16
        elapsed = time.perf_counter() - began
        if not warm and elapsed > seconds / 5:
            warm, began, cpu, turns = True, time.perf_counter(), cpu_seconds(), 0
        elif warm and elapsed > seconds:
            break
    used = cpu_seconds() - cpu
    steps = turns * num_envs
    return {
        "steps_per_second": steps / elapsed,
        "steps_per_cpu_second": steps / used,
        "cpu_seconds_per_second": used / elapsed,
    }


def direct(environment_id: str, num_envs: int) -> tuple[Callable[[np.ndarray], Any], int]:
    """The library's own vector environment: its step function and number of actions."""
    if environment_id.startswith("ALE/"):
        game = gymnasium.spec(environment_id).kwargs["game"]
        atari = AtariVectorEnv(game, num_envs, num_threads=1, autoreset_mode=AutoresetMode.SAME_STEP)
        atari.reset(seed=0)
        return atari.step, int(atari.single_action_space.n)
    vector = gymnasium.make_vec(environment_id, num_envs, vectorization_mode="vector_entry_point")
    vector.reset(seed=0)
    return vector.step, int(vector.single_action_space.n)  # type: ignore[attr-defined]


def direct_pool(environment_id: str, num_envs: int) -> tuple[Callable[[np.ndarray], Any], int]:
    """The same of EnvPool, with as many threads as there are cores, which resets at the next step."""
    import envpool

    pool = envpool.make(environment_id, env_type="gymnasium", num_envs=num_envs, num_threads=usable_cores(), seed=0)
    pool.reset()
    return pool.step, int(pool.action_space.n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="time a result is measured for")
    parser.add_argument("--environments", type=int, default=16, help="environments side by side")
    arguments = parser.parse_args()
    report("machine", **machine())
    for environment_id, backends in CASES.items():
        in_envpool = environment_id.removeprefix("ALE/")
        direct_lines = {"direct": (direct, environment_id)} if "Native" in backends else {}
        if find_spec("envpool") is None:
            backends = tuple(backend for backend in backends if backend != "EnvPool")
        else:
            direct_lines["direct EnvPool"] = (direct_pool, in_envpool)
        for name, (make, named) in direct_lines.items():
            step, num_actions = make(named, arguments.environments)
            figures = measure(step, arguments.environments, num_actions, arguments.seconds)
            report("env_backends", environment=named, backend=name, environments=arguments.environments, **figures)
        for backend in backends:
            parameters = EnvironmentParameters(backend=backend)
            named = in_envpool if backend == "EnvPool" else environment_id
            env = make_vector_environment(named, parameters, arguments.environments, 0)
            env.reset()
            figures = measure(env.step, env.num_envs, env.spec.num_actions, arguments.seconds)
            env.close()
            report("env_backends", environment=named, backend=backend, environments=env.num_envs, **figures)


if __name__ == "__main__":
    main()

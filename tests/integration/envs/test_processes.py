"""What happens to worker processes when something goes wrong: named, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium.vector import SyncVectorEnv
from rljob.api import EnvironmentParameters
from rljob.cores import usable_cores
from rljob.envs import (
    EnvironmentProblem,
    describe_environment,
    factory,
    make_single_environment,
    make_vector_environment,
)
from rljob.envs.gymnasium_vector import GymnasiumVector
from rljob.envs.processes import ProcessVector

ASYNC = EnvironmentParameters(backend="Async")


def _workers(env: GymnasiumVector) -> list[int]:
    assert isinstance(env._env, ProcessVector)
    return [process.pid for process in env._env.processes]


def _step_until_problem(env: GymnasiumVector, actions: np.ndarray) -> EnvironmentProblem:
    for _ in range(1000):
        try:
            env.step(actions)
        except EnvironmentProblem as problem:
            return problem
    raise AssertionError("a thousand steps without a problem")


def test_a_killed_worker_is_named_and_the_others_end() -> None:
    env = make_vector_environment("CartPole-v1", ASYNC, 3, 0)
    assert isinstance(env, GymnasiumVector)
    env.reset()
    pids = _workers(env)
    os.kill(pids[1], signal.SIGKILL)
    problem = _step_until_problem(env, np.zeros(3, np.int64))
    assert problem.environment == 1
    assert "environment 1 of 'CartPole-v1'" in str(problem)
    assert "SIGKILL" in str(problem)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    env.close()
    env.close()


def test_an_environment_that_dies_inside_its_step_is_named() -> None:
    env = make_vector_environment(
        "tests.support.toys:countdown", EnvironmentParameters(backend="Async", kwargs={"kill_at": 4}), 3, 0
    )
    assert isinstance(env, GymnasiumVector)
    env.reset()
    problem = _step_until_problem(env, np.zeros(3, np.int64))
    assert problem.environment == 1


@pytest.mark.parametrize("backend", ["Async", "Sync"])
def test_an_environment_that_raises_is_named_with_its_reason(backend: str) -> None:
    parameters = EnvironmentParameters(backend=backend, kwargs={"fail_at": 4})
    env = make_vector_environment("tests.support.toys:countdown", parameters, 3, 0)
    assert isinstance(env, GymnasiumVector)
    env.reset()
    problem = _step_until_problem(env, np.zeros(3, np.int64))
    assert problem.environment == 1
    where = r"environment 1 of 'tests.support.toys:countdown' failed in step\(\): toys.py:\d+, in step"
    assert re.fullmatch(f"{where}: RuntimeError: the plant caught fire, in step 4 of the episode", str(problem))
    env.close()


class WithAChild(gymnasium.Env[Any, Any]):
    """A simulator in a process of its own, whose steps take as long as ``seconds``."""

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,), np.float32), gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float, child: bool = True) -> None:
        self._seconds = seconds
        self._child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,)) if child else None
        if self._child is not None:
            self._child.start()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self._seconds)
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.join()


def test_an_environment_in_a_worker_may_have_processes_of_its_own() -> None:
    parameters = EnvironmentParameters(backend="Async", kwargs={"seconds": 0.0})
    env = make_vector_environment(f"{__name__}:WithAChild", parameters, 2, 0)
    assert env.reset().shape == (2, 1, 1)
    env.close()


@pytest.mark.skipif(usable_cores() < 2, reason="one core has nothing to share")
@pytest.mark.parametrize(("seconds", "kind"), [(0.0, SyncVectorEnv), (0.002, ProcessVector)])
def test_slow_steps_alone_are_worth_processes(seconds: float, kind: type) -> None:
    env = make_vector_environment(
        f"{__name__}:WithAChild", EnvironmentParameters(kwargs={"seconds": seconds, "child": False}), 3, 0
    )
    assert isinstance(env, GymnasiumVector)
    assert type(env._env) is kind
    env.close()


@pytest.mark.parametrize(("seconds", "steps"), [(0.0, 3), (60.0, 31)])
def test_few_steps_show_that_a_simulator_is_slow(seconds: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "_TRIED_SECONDS", seconds)
    parameters = EnvironmentParameters()
    env = make_single_environment("CartPole-v1", parameters, for_scoring=False)
    assert len(list(factory._step_seconds(env, describe_environment("CartPole-v1", parameters)))) == steps
    env.close()


def test_no_worker_outlives_a_killed_owner(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(
        "from rljob.api import EnvironmentParameters\n"
        "from rljob.envs import make_vector_environment\n"
        "import time\n"
        "if __name__ == '__main__':\n"
        "    env = make_vector_environment('CartPole-v1', EnvironmentParameters(backend='Async'), 2, 0)\n"
        "    env.reset()\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    family = psutil.Process(owner.pid).children(recursive=True)
    assert len(family) >= 2
    owner.kill()
    owner.wait()
    gone, alive = psutil.wait_procs(family, timeout=60)
    assert not alive, f"{len(gone)} ended, left: {alive}"


def test_close_ends_the_workers_and_leaves_no_shared_memory() -> None:
    def ours() -> set[str]:
        return {name for name in os.listdir("/dev/shm") if name.startswith(f"pym-{os.getpid()}-")}

    before = ours()
    env = make_vector_environment("CartPole-v1", ASYNC, 2, 0)
    assert isinstance(env, GymnasiumVector)
    env.reset()
    pids = _workers(env)
    env.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert ours() == before


def test_the_copy_that_is_tried_leaves_the_seed_of_the_process_alone() -> None:
    drawn = []
    for seed in (1, 2):
        np.random.seed(seed)
        make_vector_environment(
            f"{__name__}:WithAChild", EnvironmentParameters(kwargs={"seconds": 0.0, "child": False}), 3, 0
        ).close()
        drawn.append(np.random.random())
    assert drawn[0] != drawn[1], "environments that draw while they are made differ between actors"

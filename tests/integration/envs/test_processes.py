"""What happens to worker processes, and to those that try an environment, when something goes wrong: named, and nothing left."""

import logging
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from rljob import loading
from rljob.api import EnvironmentParameters
from rljob.envs import (
    EnvironmentProblem,
    EnvironmentSpec,
    describe_environment,
    describe_environment_apart,
    factory,
    make_single_environment,
    make_vector_environment,
)
from rljob.envs.gymnasium_vector import GymnasiumVector
from rljob.envs.processes import ProcessVector
from rljob.threads import usable_cores

from tests.support.odd_environments import Plain
from tests.support.waiting import eventually

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


@pytest.mark.parametrize("backend", ["Async", "Sync"])
def test_an_environment_that_raises_is_named_with_its_reason(backend: str, closes: Any) -> None:
    parameters = EnvironmentParameters(backend=backend, kwargs={"fail_at": 4})
    env = closes(make_vector_environment("tests.support.toys:countdown", parameters, 3, 0))
    env.reset()
    problem = _step_until_problem(env, np.zeros(3, np.int64))
    assert problem.environment == 1
    where = r"environment 1 of 'tests.support.toys:countdown' failed in step\(\): toys.py:\d+, in step"
    assert re.fullmatch(f"{where}: RuntimeError: the plant caught fire, in step 4 of the episode", str(problem))


class WithAChild(Plain):
    """A simulator in a process of its own, whose steps take as long as ``seconds``."""

    def __init__(self, seconds: float, child: bool = True) -> None:
        super().__init__(limit=1_000_000)
        self._seconds = seconds
        self._child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,)) if child else None
        if self._child is not None:
            self._child.start()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self._seconds)
        return super().step(action)

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.join()


def test_an_environment_in_a_worker_may_have_processes_of_its_own(closes: Any) -> None:
    parameters = EnvironmentParameters(backend="Async", kwargs={"seconds": 0.0})
    env = closes(make_vector_environment(f"{__name__}:WithAChild", parameters, 2, 0))
    assert env.reset().shape == (2, 1, 3)


@pytest.mark.skipif(usable_cores() < 2, reason="one core has nothing to share")
@pytest.mark.parametrize(("seconds", "kind"), [(0.0, SyncVectorEnv), (0.002, ProcessVector)])
def test_slow_steps_alone_are_worth_processes(seconds: float, kind: type, closes: Any) -> None:
    env = closes(
        make_vector_environment(
            f"{__name__}:WithAChild", EnvironmentParameters(kwargs={"seconds": seconds, "child": False}), 3, 0
        )
    )
    assert type(env._env) is kind


@pytest.mark.parametrize(("seconds", "steps"), [(0.0, 3), (60.0, 31)])
def test_few_steps_show_that_a_simulator_is_slow(
    seconds: float, steps: int, monkeypatch: pytest.MonkeyPatch, closes: Any
) -> None:
    monkeypatch.setattr(factory, "_TRIED_SECONDS", seconds)
    parameters = EnvironmentParameters()
    env = closes(make_single_environment("CartPole-v1", parameters, for_scoring=False))
    assert len(list(factory._step_seconds(env, describe_environment("CartPole-v1", parameters)))) == steps


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


GAME = """
import os, pathlib
import gymnasium, numpy as np

class Game(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        %s
        return np.zeros(3, np.float32), 0.0, False, False, {}

def make():
    return Game()
"""


def game(folder: Path, step: str) -> str:
    file = folder / f"{folder.name}.py"  # of one name there may be one file in a process
    file.write_text(GAME % step)
    return f"{file}:make"


def tried(name: str, **options: float) -> EnvironmentSpec:
    return describe_environment_apart(name, EnvironmentParameters(), tried=True, **options)


def problem(name: str) -> str:
    with pytest.raises(EnvironmentProblem) as caught:
        tried(name)
    return str(caught.value)


def test_one_that_plays_is_fine(tmp_path: Path) -> None:
    assert tried(game(tmp_path, "pass")).columns[0].shape == (3,)
    assert tried("CartPole-v1").columns[0].shape == (4,)


@pytest.mark.parametrize(
    ("step", "words"),
    [("os._exit(3)", "exit code 3"), ("os.abort()", "SIGABRT")],
)
def test_one_that_ends_its_process_is_named(tmp_path: Path, step: str, words: str) -> None:
    told = problem(game(tmp_path, step))
    assert f"the process that tried it ended by {words} while it was made or within its first steps, twice" in told


def test_one_that_crashed_once_may_do_so_now_and_then(tmp_path: Path) -> None:
    mark = tmp_path / "crashed"
    step = f"m = pathlib.Path({str(mark)!r}); there = m.exists(); m.touch(); there or os._exit(3)"
    tried(game(tmp_path, step))
    assert mark.exists()


def test_what_it_does_to_its_process_it_does_to_that_one_alone(tmp_path: Path) -> None:
    """Folder, signals, threads and processes that are left behind: they are not waited for, and they end."""
    took = "import signal, subprocess, threading, time; os.chdir('/'); signal.signal(signal.SIGINT, signal.SIG_IGN)"
    left = "threading.Thread(target=time.sleep, args=(600,)).start(); child = subprocess.Popen(['sleep', '600'])"
    mark = tmp_path / "child"
    here, handler = Path.cwd(), signal.getsignal(signal.SIGINT)
    tried(game(tmp_path, f"{took}; {left}; pathlib.Path({str(mark)!r}).write_text(str(child.pid))"))
    assert Path.cwd() == here
    assert signal.getsignal(signal.SIGINT) is handler
    assert f"{tmp_path.name}" not in sys.modules
    eventually(lambda: not psutil.pid_exists(int(mark.read_text())))


def test_what_it_gives_wrongly_is_told_as_ever(tmp_path: Path) -> None:
    assert "step failed: " in problem(game(tmp_path, "raise ValueError('no coal')"))


def test_one_that_takes_long_says_where_it_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = game(tmp_path, "import time; Game.waited = getattr(Game, 'waited', False) or time.sleep(1.5) or True")
    tried(name, slow_seconds=0.5)
    file = f"{tmp_path.name}.py"
    said = f"rljob: environment '{file}:make': its trial takes long, 1 s so far, and is at {file}:13, in step\n"
    assert said in capfd.readouterr().err


SETTING = """
import gymnasium, logging, torch

class Setting(gymnasium.Wrapper):
    def step(self, action):
        torch.set_num_threads(5)
        logging.disable(logging.CRITICAL)
        assert torch.empty(0).device.type == "meta" and torch.empty(0).dtype == torch.float64
        return super().step(action)

def make(copy_number):
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float64)
    env = Setting(gymnasium.make("CartPole-v1"))
    env.copy_number = copy_number
    return env
"""


def test_copies_can_be_told_apart_and_set_nothing_for_their_role(
    tmp_path: Path, closes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_theirs", {})
    (tmp_path / "setting.py").write_text(SETTING)

    def settings() -> tuple[Any, ...]:
        made = torch.empty(0)
        return torch.get_num_threads(), logging.root.manager.disable, made.device, made.dtype

    before = settings()
    name, sync = f"{tmp_path}/setting.py:make", EnvironmentParameters(backend="Sync")
    made = [closes(make_vector_environment(name, sync, 3, 0)) for _ in range(2)]
    for vector in made:
        vector.reset()
        vector.step(np.zeros(3, np.int64))
        assert settings() == before
    numbers = [env.get_wrapper_attr("copy_number") for vector in made for env in vector._env.envs]  # type: ignore[attr-defined]
    assert len(set(numbers)) == 6


def test_too_few_open_files_are_named() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 25, hard))
    try:
        with pytest.raises(EnvironmentProblem, match=r"need more open files than .* \(ulimit -n\)"):
            make_vector_environment("CartPole-v1", ASYNC, 32, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

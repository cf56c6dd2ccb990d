"""An environment that ends its process ends neither the command that tries it nor, in good order, goes unnamed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import EnvironmentProblem, EnvironmentSpec, describe_environment_apart

from tests.support.waiting import eventually

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

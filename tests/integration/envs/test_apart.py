"""An environment that ends its process ends neither the command that tries it nor, in good order, goes unnamed."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import EnvironmentProblem, try_environment_apart

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


def tried(name: str) -> str:
    with pytest.raises(EnvironmentProblem) as caught:
        try_environment_apart(name, EnvironmentParameters())
    return str(caught.value)


def test_one_that_plays_is_fine(tmp_path: Path) -> None:
    try_environment_apart(game(tmp_path, "pass"), EnvironmentParameters())
    try_environment_apart("CartPole-v1", EnvironmentParameters())


@pytest.mark.parametrize(
    ("step", "words"),
    [("os._exit(3)", "exit code 3"), ("os.abort()", "SIGABRT")],
)
def test_one_that_ends_its_process_is_named(tmp_path: Path, step: str, words: str) -> None:
    told = tried(game(tmp_path, step))
    assert f"the process that tried it ended by {words} within its first steps, twice" in told


def test_one_that_crashed_once_may_do_so_now_and_then(tmp_path: Path) -> None:
    mark = tmp_path / "crashed"
    step = f"m = pathlib.Path({str(mark)!r}); there = m.exists(); m.touch(); there or os._exit(3)"
    try_environment_apart(game(tmp_path, step), EnvironmentParameters())
    assert mark.exists()


def test_what_it_gives_wrongly_is_told_as_ever(tmp_path: Path) -> None:
    assert "step failed: " in tried(game(tmp_path, "raise ValueError('no coal')"))


def test_one_that_takes_long_says_where_it_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = game(tmp_path, "import time; Game.waited = getattr(Game, 'waited', False) or time.sleep(1.5) or True")
    try_environment_apart(name, EnvironmentParameters(), slow_seconds=0.5)
    file = f"{tmp_path.name}.py"
    said = f"rljob: environment '{file}:make': its trial takes long, 1 s so far, and is at {file}:13, in step\n"
    assert said in capfd.readouterr().err

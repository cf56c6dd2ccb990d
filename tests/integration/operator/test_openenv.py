"""The example of an environment behind a server that speaks OpenEnv, with an interpreter of its own and nothing installed."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from rljob.loading import loaded

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import ENVIRONMENTS
from tests.support.waiting import eventually

FOLDER = ENVIRONMENTS / "openenv"
BARE = [sys.executable, "-I", "-S", "maze_server.py", "--while-stdin-is-open", "--port"]
"""Starts the server at the port that comes last, without site-packages and whatever else this interpreter has."""
MAZE = {
    "observation": {"place": {"Box": {"low": 0, "high": 1, "shape": [2]}}, "free": {"MultiBinary": 4}},
    "action": {"direction": {"Discrete": 4}},
}
make = loaded(f"{FOLDER / 'openenv_client.py'}:make")


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server that was started by itself; it is seen to end with this process's hold on it."""
    process = subprocess.Popen(
        [*BARE, "0"], cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield process.stdout.readline().split()[-1].removesuffix("/ws")
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, "")


def far_from_the_exit(env: gymnasium.Env[Any, Any]) -> tuple[Any, int]:
    """An episode that begins more than one step away, and its seed."""
    for seed in range(100):
        seen, _ = env.reset(seed=seed)
        if seen["place"].sum() < 1.0:
            return seen, seed
    raise AssertionError("every episode begins at the exit")


def test_every_connection_has_a_maze_of_its_own_that_repeats_itself_with_its_seed(server: str) -> None:
    with closing(make(**MAZE, url=server, max_steps=5)) as one, closing(make(**MAZE, url=server)) as other:
        seen, seed = far_from_the_exit(one)
        assert one.observation_space.contains(seen)
        again, _ = other.reset(seed=seed)
        assert all(np.array_equal(seen[name], again[name]) for name in seen)
        way = int(np.flatnonzero(seen["free"])[0])
        after, reward, terminated, truncated, _ = one.step(way)
        assert not np.array_equal(after["place"], seen["place"])
        assert -1.0 < reward < 0.0
        assert not terminated
        assert (one.unwrapped.state()["step_count"], other.unwrapped.state()["step_count"]) == (1, 0)
        for _ in range(4):
            *_, truncated, _ = one.step(way)
        assert truncated, "after max_steps"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"observation": {"place": {"Box": {"low": 0, "high": 1, "shape": [3]}}}},
            r"place: expected Box\(.*, \(3,\), .*, got {",
        ),
        ({"observation": {"plan": {"Discrete": 3}}}, r"observation plan: expected Discrete\(3\), got {'place': "),
        ({"action": {"way": {"Discrete": 4}}}, r"step: KeyError\('direction'\) \(EXECUTION_ERROR\)"),
    ],
)
def test_what_the_server_has_otherwise_is_named(server: str, changed: dict[str, Any], said: str) -> None:
    def play() -> None:
        env.reset(seed=1)
        env.step(0)

    with closing(make(**MAZE | changed, url=server)) as env, pytest.raises((ValueError, RuntimeError), match=said):
        play()


def test_a_server_that_is_not_there_is_named_and_so_is_a_command_that_ends() -> None:
    with pytest.raises(ConnectionError, match=r"^the OpenEnv server at 127.0.0.1:9: state: .*Connection refused"):
        make(**MAZE, url="ws://127.0.0.1:9")
    with pytest.raises(ConnectionError, match=r"'exit\(4\)'\] ended with exit code 4$"):
        make(**MAZE, command=[sys.executable, "-c", "exit(4)"])


def test_a_server_that_dies_costs_its_episode_and_is_started_again() -> None:
    with closing(make(**MAZE, command=[*BARE, "{port}"])) as env:
        env.reset(seed=1)
        process = env.unwrapped._server
        process.kill()
        process.wait()
        with pytest.raises(ConnectionError, match=r"step: "):
            env.step(0)
        with pytest.raises(ConnectionError, match=r"lost in this episode; reset\(\) connects again$"):
            env.step(0)
        env.reset(seed=1)
        env.step(0)
        last = env.unwrapped._server
    assert last.returncode is not None, "it ends with the environment"


@pytest.mark.long
def test_the_example_trains_and_leaves_no_server(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    shutil.copytree(ENVIRONMENTS, tmp_path / "environments")
    folder = tmp_path / "environments" / "openenv"

    def servers() -> set[int]:
        return {each.pid for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(folder)}

    command = json.dumps([*BARE, "{port}"])
    changes = (f"environment.kwargs.command={command}", "successPolicy.rawFrames=1000000", "actors.envsPerActor=4")
    options = [word for change in changes for word in ("--set", f"spec.{change}")]
    run = local_run(*ENDLESS, *options, job=tmp_path / "environments" / "openenv.yaml")
    run.until(lambda: run.status("actor-0").get("steps", 0) >= 300, 60, "300 steps")
    first = servers()
    assert len(first) == 4
    run.kill("actor-0")
    run.until(lambda: not first & servers(), 20, "the end of the servers of an actor that was killed")
    assert run.interrupt() == 130
    eventually(lambda: not servers(), lambda: f"servers that are left: {servers()}", 20)

"""Processes that share the games of an evaluation: the same games, whichever process plays them, and no process left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from rljob.api import parse_job
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.envs import EnvironmentProblem
from rljob.evaluation import players as room
from rljob.evaluation.players import PlayerLost, Players
from rljob.weights.flat import Weights, snapshot

from tests.support.evaluated_jobs import identity_of, manifest, network
from tests.support.paths import ROOT
from tests.support.waiting import eventually

EPISODES = 7
JOB = manifest(episodes=EPISODES)


def weights(seed: int) -> Weights:
    return snapshot(network(parse_job(JOB), seed), seed, 1, {})


def nothing() -> None:
    pass


@contextmanager
def made(processes: int) -> Iterator[Players]:
    players = Players(identity_of(parse_job(JOB)), processes, EPISODES)
    try:
        yield players
    finally:
        pids = [process.pid for process in players._processes]
        players.close()
        assert not any(alive(pid) for pid in pids)


def alive(pid: int | None) -> bool:
    return pid is not None and os.path.exists(f"/proc/{pid}")


def test_it_does_not_matter_who_plays_a_game() -> None:
    seen = []
    for processes in (1, 20):
        with made(processes) as players:
            assert len(players._helpers) == min(processes, EPISODES) - 1
            games = [list(players.play(weights(seed), range(EPISODES), 10 * seed, nothing)) for seed in (1, 2)]
            seen.append([sorted(some, key=lambda game: game.index) for some in games])
            assert players.failures_total == 0
            assert players.steps_total == sum(game.length for some in games for game in some)
    assert [game.index for game in seen[0][0]] == list(range(EPISODES))
    assert all(games == seen[0] for games in seen[1:])
    assert seen[0][0] != seen[0][1], "other weights and starts play other games"


def test_games_that_are_drawn_by_numpys_own_generator_are_each_another() -> None:
    job = parse_job({**JOB, "spec": {**JOB["spec"], "environment": {"id": "tests.support.odd_environments:Drawing"}}})
    with closing(Players(identity_of(job), 2, 100)) as players:
        games = list(players.play(snapshot(network(job, 1), 1, 1, {}), range(100), 3, nothing))
    assert len({game.points for game in games}) == 100


def test_every_game_counts_and_is_dealt_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """More games than places: the process that has a free place gets the next, until each has been played once."""
    monkeypatch.setattr(room, "ROWS", 2)
    for processes in (1, 2):
        with made(processes) as players:
            assert sorted(game.index for game in players.play(weights(1), range(40), 3, nothing)) == list(range(40))


def test_whoever_stops_asking_gets_no_games_of_before() -> None:
    with made(1) as alone:
        expected = {game.index: game for game in alone.play(weights(2), range(EPISODES), 5, nothing)}
    with made(3) as players:
        for _ in range(5):
            with closing(players.play(weights(1), range(EPISODES), 3, nothing)) as games:
                next(games)
        assert {game.index: game for game in players.play(weights(2), range(EPISODES), 5, nothing)} == expected


def test_leaving_between_two_steps_reaches_the_caller() -> None:
    calls = iter(range(5))

    def leave() -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt

    with made(2) as players:
        with pytest.raises(KeyboardInterrupt):
            list(players.play(weights(1), range(EPISODES), 3, leave))
        assert len(list(players.play(weights(1), range(EPISODES), 3, nothing))) == EPISODES


def test_a_killed_helper_is_named() -> None:
    with made(2) as players:
        (process,) = players._processes
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        with pytest.raises(PlayerLost, match=r"player-1, .* exit code -9"):
            list(players.play(weights(1), range(EPISODES), 3, nothing))


GAME = """
import multiprocessing, threading, time
import gymnasium, numpy as np

lock = threading.Lock()

def hold():
    while True:
        with lock:
            time.sleep(0.01)

threading.Thread(target=hold, daemon=True).start()  # a fork would have its lock, and no thread that gives it back

class Game(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    made = steps = 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(3, np.float32), 1.0, self.steps == 50, False, {}

    def close(self):
        Game.made -= 1

def make(helpers):
    if helpers == "one" and Game.made:
        raise RuntimeError("the engine runs already")
    Game.made += 1
    player = multiprocessing.current_process()
    if player.name.startswith("player"):
        print("made beside", flush=True)
        if helpers == "fail":
            raise ValueError("one license for this machine")
        simulator = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
        simulator.start()  # a daemon may not
        simulator.join()
    with lock:
        return Game()
"""


def of_a_game(folder: Path, helpers: str) -> tuple[PolicyIdentity, Weights]:
    file = folder / f"{folder.name}.py"
    file.write_text(GAME)
    job = manifest(episodes=4)
    job["spec"]["environment"] = {"id": f"{file}:make", "kwargs": {"helpers": helpers}}
    return identity_of(parse_job(job)), snapshot(network(parse_job(job), 1), 1, 1, {})


def test_helpers_are_processes_like_any_other(tmp_path: Path) -> None:
    """Not forks of one that has imported the environment, and no daemons."""
    policy, played = of_a_game(tmp_path, "play")
    with closing(Players(policy, 2, 4)) as players:
        assert sorted(game.index for game in players.play(played, range(4), 3, nothing)) == list(range(4))


@pytest.mark.parametrize("processes", [1, 2])
def test_an_engine_that_allows_one_copy_a_process_plays_one_game_at_a_time(
    processes: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LONG_SECONDS", 0.0)
    policy, played = of_a_game(tmp_path, "one")
    with closing(Players(policy, processes, 4)) as players:
        assert sorted(game.index for game in players.play(played, range(4), 3, nothing)) == list(range(4))
    assert f"1 games side by side in this process, not {4 // processes}, as there are no more copies: " in caplog.text
    assert "cannot be made: " in caplog.text
    assert "no game has ended for 0 s; the longest has 49 steps so far." in caplog.text


def test_why_a_helper_has_no_environment_is_raised_here(tmp_path: Path) -> None:
    policy, played = of_a_game(tmp_path, "fail")
    with closing(Players(policy, 2, 4)) as players, pytest.raises(EnvironmentProblem, match="one license for this"):
        list(players.play(played, range(4), 3, nothing))


_OWNER = """
import json, sys, time
from tests.support.evaluated_jobs import identity_of
from rljob.api import parse_job
from rljob.evaluation.players import Players
players = Players(identity_of(parse_job(json.loads(sys.argv[1]))), 3, 7)
print(*[process.pid for process in players._processes], flush=True)
time.sleep(60)
"""


def test_no_helper_outlives_a_killed_owner() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, json.dumps(JOB)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as owner:
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        owner.kill()
    eventually(lambda: not any(alive(pid) for pid in pids))

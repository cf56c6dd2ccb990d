"""Processes that share the games of an evaluation: the same games, whoever plays them, and no process left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from evaluation_builders import manifest, network
from rljob.api import RLJobSpec, parse_job
from rljob.envs import KeepsFailing
from rljob.evaluation import players as room
from rljob.evaluation.player import Player
from rljob.evaluation.players import PlayerLost, Players
from rljob.evaluation.score import Played
from rljob.learner.flat import Weights, snapshot

EPISODES = 7
JOB = manifest(episodes=EPISODES)


def spec() -> RLJobSpec:
    return parse_job(JOB).spec


def weights(seed: int) -> Weights:
    return snapshot(network(parse_job(JOB), seed), seed, 1, {})


def nothing() -> None:
    pass


@contextmanager
def made(processes: int) -> Iterator[Players]:
    players = Players(spec(), processes)
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
    for processes in (1, 2, 3, 20):
        with made(processes) as players:
            assert len(players._helpers) == min(processes, EPISODES) - 1
            games = [list(players.play(weights(seed), EPISODES, 10 * seed, nothing)) for seed in (1, 2)]
            seen.append([sorted(some, key=lambda game: game.index) for some in games])
            assert players.failures_total == 0
    assert [game.index for game in seen[0][0]] == list(range(EPISODES))
    assert all(games == seen[0] for games in seen[1:])
    assert seen[0][0] != seen[0][1], "other weights and starts play other games"


def test_whoever_stops_asking_gets_no_games_of_before() -> None:
    with made(1) as alone:
        expected = {game.index: game for game in alone.play(weights(2), EPISODES, 5, nothing)}
    with made(3) as players:
        for _ in range(5):
            with closing(players.play(weights(1), EPISODES, 3, nothing)) as games:
                next(games)
        assert {game.index: game for game in players.play(weights(2), EPISODES, 5, nothing)} == expected


def test_leaving_between_two_steps_reaches_the_caller() -> None:
    calls = iter(range(5))

    def leave() -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt

    with made(2) as players:
        with pytest.raises(KeyboardInterrupt):
            list(players.play(weights(1), EPISODES, 3, leave))
        assert len(list(players.play(weights(1), EPISODES, 3, nothing))) == EPISODES


def test_a_killed_helper_is_named() -> None:
    with made(2) as players:
        (process,) = players._processes
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(5)
        with pytest.raises(PlayerLost, match=r"player-1, .* exit code -9"):
            list(players.play(weights(1), EPISODES, 3, nothing))


class Failing(Player):
    """Fails in a helper, whose first game is not game 0."""

    def play(
        self, weights: Weights, games: Any, seed: int, each_step: Callable[[], None]
    ) -> Generator[Played, None, None]:
        if games[0] > 0:
            raise KeepsFailing("too often")
        yield from super().play(weights, games, seed, each_step)


def test_what_ends_a_helper_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "Player", Failing)
    with made(2) as players, pytest.raises(KeepsFailing, match="too often"):
        list(players.play(weights(1), EPISODES, 3, nothing))


_OWNER = """
import json, sys, time
from rljob.api import parse_job
from rljob.evaluation.players import Players
players = Players(parse_job(json.loads(sys.argv[1])).spec, 3)
print(*[process.pid for process in players._processes], flush=True)
time.sleep(60)
"""


def test_no_helper_outlives_a_killed_owner() -> None:
    with subprocess.Popen([sys.executable, "-c", _OWNER, json.dumps(JOB)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        owner.kill()
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)

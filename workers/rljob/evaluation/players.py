"""Several processes that play the games of one evaluation: emulators hold Python's lock, so threads would not do.

Game g depends on the weights, the seed and g alone, so it does not matter who plays it. This process plays its share too, and
looks for what the others have finished between its own steps. A helper is told (round, weights, games, seed) and answers
(round, game) for each game, (round, number of failures so far) behind the last, or (round, the exception that ended it).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Generator
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from rljob.api import RLJobSpec
from rljob.evaluation.player import Player
from rljob.evaluation.score import Played
from rljob.learner.flat import Weights

_CLOSE_SECONDS = 2.0
_LOOK_SECONDS = 0.05


class PlayerLost(RuntimeError):
    """A process that played a share of the games is gone."""


class _Abandoned(Exception):
    """Nobody waits for these games any more."""


class Players:
    """``processes`` players of a job, this process one of them. ``play`` is for one thread.

    The others are forked, so make this before the process has threads. They end with this process, however it ends.
    """

    def __init__(self, job: RLJobSpec, processes: int) -> None:
        episodes = job.evaluator.episodes
        processes = min(processes, episodes)
        share = -(-episodes // processes)
        context = multiprocessing.get_context("fork")
        self._helpers: list[Connection[Any, Any]] = []
        self._processes = []
        for number in range(1, processes):
            ours, theirs = context.Pipe()
            foreign = [*self._helpers, ours]
            process = context.Process(
                target=_help, args=(job, share, theirs, foreign), name=f"player-{number}", daemon=True
            )
            process.start()
            theirs.close()
            self._helpers.append(ours)
            self._processes.append(process)
        self._own = Player(job, share)
        self._helpers_failures = [0] * len(self._helpers)
        self._round = 0

    @property
    def failures_total(self) -> int:
        """Environments that failed and were begun anew, as far as it is known."""
        return self._own.failures.total + sum(self._helpers_failures)

    def play(
        self, weights: Weights, episodes: int, seed: int, each_step: Callable[[], None]
    ) -> Generator[Played, None, None]:
        """Games 0 to ``episodes`` - 1, each as it ends. ``each_step`` is called often and may raise to leave; whoever stops
        asking may close the iterator, and the others stop playing. Raises ``PlayerLost``, and what a player raises."""
        self._round += 1
        arrived: deque[Played] = deque()
        waiting: set[int] = set()
        try:
            for helper in range(len(self._helpers)):
                games = range(helper + 1, episodes, len(self._helpers) + 1)
                if games:
                    self._tell(helper, (self._round, weights, games, seed))
                    waiting.add(helper)

            def look(seconds: float = 0.0) -> None:
                for connection in wait([self._helpers[helper] for helper in waiting], seconds) if waiting else ():
                    self._hear(self._helpers.index(connection), waiting, arrived)  # type: ignore[arg-type]

            def between_steps() -> None:
                each_step()
                look()

            for played in self._own.play(weights, range(0, episodes, len(self._helpers) + 1), seed, between_steps):
                yield played
                while arrived:
                    yield arrived.popleft()
            while waiting or arrived:
                while arrived:
                    yield arrived.popleft()
                each_step()
                look(_LOOK_SECONDS)
        finally:
            for helper in waiting:
                with contextlib.suppress(PlayerLost):
                    self._tell(helper, (self._round, None, (), 0))

    def close(self) -> None:
        """End the helpers and give up this process's environments."""
        for connection in self._helpers:
            connection.close()
        for process in self._processes:
            process.join(_CLOSE_SECONDS)
            if process.is_alive():
                process.kill()
        self._own.close()

    def _tell(self, helper: int, message: tuple[int, Weights | None, Any, int]) -> None:
        try:
            self._helpers[helper].send(message)
        except OSError as error:
            raise self._lost(helper) from error

    def _hear(self, helper: int, waiting: set[int], arrived: deque[Played]) -> None:
        try:
            round_, answer = self._helpers[helper].recv()
        except (EOFError, OSError) as error:
            raise self._lost(helper) from error
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, int):
            self._helpers_failures[helper] = answer
        if round_ != self._round:
            return
        if isinstance(answer, Played):
            arrived.append(answer)
        else:
            waiting.discard(helper)

    def _lost(self, helper: int) -> PlayerLost:
        process = self._processes[helper]
        process.join(_CLOSE_SECONDS)
        return PlayerLost(f"{process.name}, which played a share of the games, ended with exit code {process.exitcode}")


def _help(job: RLJobSpec, share: int, connection: Connection[Any, Any], foreign: list[Connection[Any, Any]]) -> None:
    """Play what is asked for until the other end is closed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the evaluator decides what Ctrl-C means
    torch.set_num_threads(1)  # a player's share, and a fork has no other threads that could compute
    for other in foreign:
        other.close()  # or they would never be closed at this end

    def asked_for() -> None:
        if connection.poll():
            raise _Abandoned

    round_ = 0
    try:
        player = Player(job, share)
        while True:
            round_, weights, games, seed = connection.recv()
            if weights is None:
                continue
            with contextlib.suppress(_Abandoned):
                for played in player.play(weights, games, seed, asked_for):
                    connection.send((round_, played))
            connection.send((round_, player.failures.total))
    except (EOFError, OSError):
        return
    except Exception as error:  # noqa: BLE001 (it is raised where the evaluation is)
        with contextlib.suppress(OSError):
            connection.send((round_, error))

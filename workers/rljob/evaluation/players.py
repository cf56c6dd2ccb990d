"""Several processes that play the games of one evaluation: emulators hold Python's lock, so threads would not do.

Game g depends on the weights, the seed and g alone, so it does not matter which process plays it. This process deals the
games in their order, to processes that have a free place. It plays too, and between its own steps takes what the others have
finished. A helper is told (round, weights, seed) when an evaluation begins, then the number of each game that it is dealt; it
answers (round, game, its failures so far) for each game that ended, or (round, the exception that ended it, 0).
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from multiprocessing import util
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any

import torch

from rljob import child
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.envs.base import EnvironmentProblem
from rljob.envs.trial import that_travels
from rljob.evaluation.player import ROWS, Player
from rljob.evaluation.score import Played
from rljob.weights.flat import Weights

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 2.0
_LOOK_SECONDS = 0.05


LONG_SECONDS = 60.0
_LONG = (
    "no game has ended for %g s; the longest has %s steps so far. Where a good policy never ends a game, nothing is judged: end "
    "it after so many steps, with evaluator.environment: {maxEpisodeSteps: ...} or, in training too, environment.maxEpisodeSteps"
)


MOST_STEPS = 100_000
"""A game of Atari has 27,000 at most. No game has ended until one has so many: the policy is not judged."""


class NoGameEnds(EnvironmentProblem):
    """The games of a judgement go on and on."""


class PlayerLost(RuntimeError):
    """A process that played some of the games is gone."""


class Players:
    """``processes`` players of a policy, this process one of them, for evaluations of up to ``episodes`` games. ``play`` is for
    one thread. epsilon: as ``Player`` says.

    The others come from a fork server, which has imported no environment: a fork of this process would have the locks of its
    threads, and not the threads. They end with this process, however it ends. Each plays as many games at once as share a forward
    pass: more would be no faster, and those in play when a verdict falls are lost.
    """

    def __init__(self, policy: PolicyIdentity, processes: int, episodes: int, epsilon: float | None = None) -> None:
        processes = min(processes, episodes)
        places = min(ROWS, -(-episodes // processes))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["rljob.evaluation.player"])
        self._helpers: list[Connection[Any, Any]] = []
        self._processes: list[ForkServerProcess] = []
        for number in range(1, processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_help, args=(policy, places, epsilon, theirs), name=f"player-{number}")
            with child.beginning_servers():
                process.start()
            theirs.close()
            self._helpers.append(ours)
            self._processes.append(process)
        # Also where this is never closed: Python waits at its end for processes that are no daemons.
        self._end_helpers = util.Finalize(self, _end, (self._helpers, self._processes), exitpriority=0)
        self._own = Player(policy, places, epsilon)
        self.shapes, self.bounds = self._own.shapes, self._own.bounds
        self._places, self._round = places, 0
        self._playing, self._failures = [0] * len(self._helpers), [0] * len(self._helpers)
        self.steps_total = 0
        """Steps of games: in this process as they are played, in the others as games end."""

    @property
    def failures_total(self) -> int:
        """Environments that failed and were begun anew, as far as it is known."""
        return self._own.failures.total + sum(self._failures)

    def play(
        self, weights: Weights, games: Sequence[int], seed: int, each_step: Callable[[], None]
    ) -> Generator[Played, None, None]:
        """The ``games`` (their numbers), each as it ends. ``each_step`` is called often and may raise to leave; a caller that
        wants no more games may close the iterator, and the helpers stop. Raises ``PlayerLost``, ``NoGameEnds``, and what a player
        raises."""
        self._round += 1
        to_come, last_end, own = deque(games), time.monotonic(), self._own.sitting
        self._own.begin(weights, seed)
        self._playing = [0] * len(self._helpers)
        try:
            for helper in range(len(self._helpers)):
                self._tell(helper, (self._round, weights, seed))
            while to_come or own.playing or any(self._playing):
                self._deal(to_come, each_step)
                each_step()
                stepped = own.playing
                ended = [*self._own.step(each_step), *self._heard(0.0 if own.playing else _LOOK_SECONDS)]
                self.steps_total += stepped
                if ended or time.monotonic() - last_end > LONG_SECONDS:
                    if not ended and own.longest > MOST_STEPS:
                        raise NoGameEnds(_LONG % (LONG_SECONDS, f"{own.longest:,}"))
                    if not ended:
                        log.warning(_LONG, LONG_SECONDS, f"{own.longest:,}")
                    last_end = time.monotonic()
                yield from ended
        finally:
            own.begin(0)
            for helper, playing in enumerate(self._playing):
                if playing:
                    with contextlib.suppress(PlayerLost):
                        self._tell(helper, (self._round, None, 0))

    def close(self) -> None:
        """End the helpers and give up this process's environments."""
        self._end_helpers()
        self._own.close()

    def _deal(self, to_come: deque[int], each_step: Callable[[], None]) -> None:
        """Deal the next games in turn, one to each that has a free place, until no place is free or all are dealt."""
        dealt = True
        while dealt and to_come:
            dealt = False
            if self._own.sitting.free:
                each_step()  # a start can take as long as three hundred steps
                self._own.sitting.deal(to_come.popleft())
                dealt = True
            for helper, playing in enumerate(self._playing):
                if to_come and playing < self._places:
                    self._tell(helper, to_come.popleft())
                    self._playing[helper] += 1
                    dealt = True

    def _heard(self, seconds: float) -> list[Played]:
        """The games that helpers have finished, waiting up to ``seconds`` for the first."""
        ended = []
        busy = {self._helpers[helper]: helper for helper, playing in enumerate(self._playing) if playing}
        while busy and (ready := wait(list(busy), seconds)):
            seconds = 0.0
            for connection in ready:
                helper = busy[connection]  # type: ignore[index]
                try:
                    round_, answer, failures = self._helpers[helper].recv()
                except (EOFError, OSError) as error:
                    raise self._lost(helper) from error
                if isinstance(answer, Exception):
                    raise answer
                self._failures[helper] = failures
                self.steps_total += answer.length
                if round_ == self._round:
                    ended.append(answer)
                    self._playing[helper] -= 1
                    if not self._playing[helper]:
                        del busy[connection]  # type: ignore[arg-type]
        return ended

    def _tell(self, helper: int, message: tuple[int, Weights | None, int] | int) -> None:
        try:
            self._helpers[helper].send(message)
        except OSError as error:
            raise self._lost(helper) from error

    def _lost(self, helper: int) -> Exception:
        """Why a helper is gone: the error that it sent, else how it ended."""
        with contextlib.suppress(EOFError, OSError):
            while self._helpers[helper].poll():
                _, answer, _ = self._helpers[helper].recv()
                if isinstance(answer, Exception):
                    return answer
        process = self._processes[helper]
        process.join(_CLOSE_SECONDS)
        return PlayerLost(f"{process.name}, which played some of the games, ended with exit code {process.exitcode}")


def _end(helpers: list[Connection[Any, Any]], processes: list[ForkServerProcess]) -> None:
    for connection in helpers:
        connection.close()
    for process in processes:
        process.join(_CLOSE_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def _help(policy: PolicyIdentity, places: int, epsilon: float | None, connection: Connection[Any, Any]) -> None:
    """Play what is dealt until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the evaluator decides what Ctrl-C means
    os.environ.pop(child.SAFE_PATH, None)
    torch.set_num_threads(1)  # each core has a process of its own
    round_, dealt = 0, deque[int]()
    try:
        with contextlib.closing(Player(policy, places, epsilon)) as player:
            while True:
                while connection.poll(0.0 if player.sitting.playing or dealt else None):
                    message = connection.recv()
                    if isinstance(message, int):
                        dealt.append(message)
                        continue
                    round_, weights, seed = message
                    dealt.clear()
                    if weights is None:
                        player.sitting.begin(0)
                    else:
                        player.begin(weights, seed)
                while dealt and player.sitting.free:  # it may have fewer places than it was asked for
                    player.sitting.deal(dealt.popleft())
                for played in player.step():
                    connection.send((round_, played, player.failures.total))
    except (EOFError, OSError):
        return
    except Exception as error:  # noqa: BLE001 (it is raised where the evaluation is)
        with contextlib.suppress(OSError):
            connection.send((round_, that_travels(error), 0))

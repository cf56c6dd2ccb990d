"""Scoring: whole games, played on plain Gymnasium environments, counted in the game's own unclipped points.

Nothing here knows vector environments, lives, clipped rewards or frames stored elsewhere, so that a fault in any of them
cannot flatter a score. Game g of an evaluation depends on ``seed + g`` and the policy alone: it does not matter how many
games are played side by side, and a score can be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rljob.algorithms.decision import Game
from rljob.envs.restarting import FAILURE, RestartLimit

Env = gymnasium.Env[Any, Any]

JudgedPolicy = Callable[[NDArray[Any], Sequence[Game]], NDArray[np.int64]]
"""Observations [B, S, *F*] of B games, and the games themselves -> the action in each, int64 [B]. A policy that draws or
remembers does so with the game's own random numbers and memory."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a policy reached. ``returns`` and ``lengths`` (steps) are those of the games that were finished, in the order
    in which the games began. ``finished``: all games that were asked for; a score that was given up early is no estimate of
    the policy's mean, because games end in order of their length."""

    mean: float
    standard_error: float
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    finished: bool


@dataclass(frozen=True, slots=True)
class Played:
    """A game that was played to its end: its number in the evaluation, the points of its player, its steps."""

    index: int
    points: float
    length: int


def score(
    policy: JudgedPolicy,
    env: Env | Sequence[Env],
    episodes: int,
    seed: int,
    epsilon: float = 0.0,
    each_step: Callable[[], None] | None = None,
    failures: RestartLimit | None = None,
) -> Score:
    """What ``policy`` reaches in ``episodes`` whole games; see ``play``."""
    envs = [env] if isinstance(env, gymnasium.Env) else list(env)
    return tally(play(policy, envs, range(episodes), seed, epsilon, each_step, failures), episodes)


def tally(games: Iterable[Played], episodes: int, give_up: Callable[[Sequence[float]], bool] | None = None) -> Score:
    """The score of ``episodes`` games, which come in any order. give_up: asked whenever a game ends, with the returns so far;
    True ends the evaluation, and no further game is asked for."""
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}: a mean over no game is no score")
    ended: list[Played] = []
    for game in games:
        ended.append(game)
        if len(ended) < episodes and give_up is not None and give_up([g.points for g in ended]):
            return _summary(ended, finished=False)
    return _summary(ended, finished=True)


def play(
    policy: JudgedPolicy,
    envs: Sequence[Env],
    games: Sequence[int],
    seed: int,
    epsilon: float = 0.0,
    each_step: Callable[[], None] | None = None,
    failures: RestartLimit | None = None,
) -> Iterator[Played]:
    """Play ``games`` (their numbers), choosing a uniformly random action with probability ``epsilon``; yields each as it ends.

    envs: equal plain environments, as many games as there are of them share the policy's forward passes (faster, same result up
    to the rounding of a batched product). The caller closes them. each_step: called before every step; may raise to leave.
    failures: counts games in which a restarting environment failed; such a game is no score and is played again from its start.
    Raises ``KeepsFailing``.
    """
    failures = failures or RestartLimit(0)
    to_come = iter(games)
    playing = [_Game(env, index, seed) for env, index in zip(envs, to_come, strict=False)]
    while playing:
        if each_step is not None:
            each_step()
        failures.played(len(playing))
        actions = policy(np.stack([game.observation for game in playing]), playing)
        going_on: list[_Game] = []
        for game, action in zip(playing, actions, strict=True):
            if game.step(int(action), epsilon):
                going_on.append(game)
                continue
            if game.failure is not None:
                failures.note(game.failure)
                going_on.append(_Game(game.env, game.index, seed))
                continue
            yield Played(game.index, game.points, game.length)
            if (following := next(to_come, None)) is not None:
                going_on.append(_Game(game.env, following, seed))
        playing = going_on


def could_still_reach(target: float, returns: Sequence[float], episodes: int, best_possible: float | None) -> bool:
    """Whether the mean over ``episodes`` games can still be at least ``target``, were every game to come perfect.

    Exact, not a guess: False only when no outcome of the remaining games reaches the target. Always True where the best
    possible return of a game is not known (``None``).
    """
    if best_possible is None:
        return True
    # fsum: the sum that decides must not depend on the order in which games happened to end.
    best_sum = math.fsum(returns) + (episodes - len(returns)) * best_possible
    return best_sum >= target * episodes


class _Game:
    """One game in progress, with its own random numbers: for the scorer's random actions, and for the policy."""

    def __init__(self, env: Env, index: int, seed: int) -> None:
        self.env = env
        self.index = index
        self.points = 0.0
        self.length = 0
        self._random = np.random.default_rng([seed, index])
        self.random = np.random.default_rng([seed, index, 1])
        self.memory: Any = None
        self.failure: str | None = None
        self._num_actions = int(env.action_space.n)  # type: ignore[attr-defined]
        self.observation, _ = env.reset(seed=seed + index)

    def step(self, action: int, epsilon: float) -> bool:
        """Take ``action`` or a random one; False when the game is over, or the environment has failed."""
        # Two draws a step whatever happens, so that games with different epsilons see the same randomness.
        explore, other = self._random.random() < epsilon, int(self._random.integers(self._num_actions))
        self.observation, reward, terminated, truncated, info = self.env.step(other if explore else action)
        self.failure = info.get(FAILURE)
        self.points += float(reward)
        self.length += 1
        return not (terminated or truncated)


def _summary(games: list[Played], finished: bool) -> Score:
    games = sorted(games, key=lambda game: game.index)
    returns = np.array([game.points for game in games])
    error = float(returns.std(ddof=1) / math.sqrt(len(returns))) if len(returns) > 1 else math.nan
    return Score(
        mean=float(returns.mean()),
        standard_error=error,
        returns=tuple(returns.tolist()),
        lengths=tuple(game.length for game in games),
        finished=finished,
    )

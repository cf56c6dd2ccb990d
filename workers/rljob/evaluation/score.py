"""Scoring: whole games, played on plain Gymnasium environments, counted in the game's own unclipped points.

Nothing here knows vector environments, lives, clipped rewards or frames stored elsewhere, so that a fault in any of them
cannot flatter a score. Game g of an evaluation depends on ``seed``, g and the policy alone: it does not matter how many
games are played side by side, and a score can be repeated. In which order games count is fixed before the first begins: a mean
over those that happened to end first would be one of short games.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from rljob.algorithms.base import Game
from rljob.api.episode_metrics import means
from rljob.choices import Choices
from rljob.envs.base import Observation, seed_of
from rljob.envs.meter import EPISODE_METRICS
from rljob.envs.restarting import FAILURE, RestartLimit
from rljob.envs.spec import EnvironmentSpec
from rljob.observation import each

Env = gymnasium.Env[Any, Any]

JudgedPolicy = Callable[[Observation, Sequence[Game]], Any]
"""Observations [B, S, *F*] of B games, and the games themselves -> the action in each, int64 [B] or [B, choices], or what
``Choices.action`` makes of continuous numbers. A policy that draws or remembers does so with the game's own random numbers and
memory."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a policy reached. ``returns`` and ``lengths`` (steps) of games in the order of their numbers. ``finished``:
    these are all games that were asked for, or decided for the policy; else they decided against it. ``metrics`` and
    ``metric_games``: what the environment itself reports, the mean of each number over the games that have it, and how many
    these are where not all do."""

    mean: float
    standard_error: float
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    finished: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    metric_games: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Played:
    """A game that was played to its end: its number in the evaluation, the points of its player, its steps, and what the
    environment itself reports of it."""

    index: int
    points: float
    length: int
    metrics: Mapping[str, float] = field(default_factory=dict)


def tally(games: Iterable[Played], decided: Callable[[Sequence[Played]], bool | None] = lambda counted: None) -> Score:
    """The score of games 0, 1, ..., which come in any order and are counted in that of their numbers: a short game not before the
    long ones that began before it. decided: asked whenever one is counted, with all that are; unless it answers None the
    evaluation ends with these games, and no further one is asked for. False: it was given up."""
    counted: list[Played] = []
    ahead: dict[int, Played] = {}
    for game in games:
        ahead[game.index] = game
        while (following := ahead.pop(len(counted), None)) is not None:
            counted.append(following)
            if (verdict := decided(counted)) is not None:
                return _summary(counted, verdict)
    return _summary(counted, finished=True)


class Sitting:
    """Games that are played side by side in ``envs``, equal plain environments, and share the policy's forward passes.

    With probability ``epsilon`` a move is uniformly random, of those that are allowed, as ``spec`` says; without it the action is
    one Discrete. The caller closes the environments. failures: counts games in
    which a restarting environment failed; such a game is no score and is played again from its start.
    """

    def __init__(
        self,
        policy: JudgedPolicy,
        envs: Sequence[Env],
        epsilon: float = 0.0,
        failures: RestartLimit | None = None,
        spec: EnvironmentSpec | None = None,
    ) -> None:
        self._policy, self._epsilon, self._envs = policy, epsilon, tuple(envs)
        self._failures = failures or RestartLimit(0)
        one = Choices((int(envs[0].action_space.n),)) if spec is None else None  # type: ignore[attr-defined]
        self._choices = (lambda shown: one) if spec is None else spec.choices
        self.begin(0)

    def begin(self, seed: int) -> None:
        """The games from now on are those of ``seed``; any in play are abandoned."""
        self._seed = seed
        self._games: list[_Game] = []
        self._idle = list(self._envs)

    @property
    def playing(self) -> int:
        """Games in play."""
        return len(self._games)

    @property
    def longest(self) -> int:
        """Steps so far of the longest game in play."""
        return max((game.length for game in self._games), default=0)

    @property
    def free(self) -> int:
        """Games that may be dealt now."""
        return len(self._idle)

    def deal(self, index: int) -> None:
        """Begin game ``index`` in a free environment."""
        self._games.append(_Game(self._idle.pop(), index, self._seed, self._choices))

    def step(self, each_game: Callable[[], None] = lambda: None) -> list[Played]:
        """One step of every game in play; the games that ended with it. Raises ``KeepsFailing``. each_game: called before the
        step of each; may raise to leave, and the games have to begin anew then."""
        if not self._games:
            return []
        self._failures.played(len(self._games))
        seen = each(lambda *arrays: np.stack(arrays), *(game.observation for game in self._games))
        actions = self._policy(seen, self._games)
        going_on, ended = [], []
        for row, game in enumerate(self._games):
            each_game()
            if game.step(each(lambda of, row=row: of[row], actions), self._epsilon):
                going_on.append(game)
            elif game.failure is not None:
                self._failures.note(game.failure)
                going_on.append(_Game(game.env, game.index, self._seed, self._choices))
            else:
                self._idle.append(game.env)
                ended.append(Played(game.index, game.points, game.length, game.metrics))
        self._games = going_on
        return ended


class _Game:
    """One game in progress, with its own random numbers: for the scorer's random actions, and for the policy."""

    def __init__(self, env: Env, index: int, seed: int, choices: Callable[[Observation], Any]) -> None:
        self.env, self.index = env, index
        self.points, self.length = 0.0, 0
        self._random, self.random = np.random.default_rng([seed, index]), np.random.default_rng([seed, index, 1])
        self.memory: Any = None
        self.failure: str | None = None
        self.metrics: Mapping[str, float] = {}
        self._choices = choices
        self.observation, _ = env.reset(seed=seed_of(seed, "game", index))

    def step(self, action: Any, epsilon: float) -> bool:
        """Take ``action`` or a random one; False when the game is over, or the environment has failed."""
        # As many draws a step whatever happens, so that games with different epsilons see the same randomness.
        choices = self._choices(each(lambda of: of[None], self.observation))
        explore, other = self._random.random() < epsilon, choices.anything(1, self._random)
        other = each(lambda of: of[0], other)
        self.observation, reward, terminated, truncated, info = self.env.step(other if explore else action)
        self.failure = info.get(FAILURE)
        self.metrics = info.get(EPISODE_METRICS, {})
        self.points += float(reward)
        self.length += 1
        return not (terminated or truncated)


def _summary(games: Sequence[Played], finished: bool) -> Score:
    returns = np.array([game.points for game in games])
    error = float(returns.std(ddof=1) / math.sqrt(len(returns))) if len(returns) > 1 else math.nan
    return Score(
        float(returns.mean()),
        error,
        tuple(returns.tolist()),
        tuple(game.length for game in games),
        finished,
        *means([game.metrics for game in games]),
    )

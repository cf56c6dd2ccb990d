"""One process's part of an evaluation: a network as the policy that a scorer wants, and the environments that it plays in."""

import logging
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import current_process
from types import SimpleNamespace
from typing import Any, Final

import gymnasium
import numpy as np
from numpy.typing import NDArray
from torch import nn

from rljob.algorithms.base import AnyAlgorithm, Game
from rljob.algorithms.registry import algorithm
from rljob.algorithms.shapes import shapes_of
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.encoders import make_encoded_environment
from rljob.envs import EnvironmentProblem, RestartLimit
from rljob.envs.base import Observation, seed_generators, seed_of
from rljob.evaluation.score import JudgedPolicy, Played, Sitting
from rljob.evaluation.verdicts import Bounds
from rljob.loading import contained
from rljob.observation import each
from rljob.weights.flat import Weights

log = logging.getLogger(__name__)

ROWS: Final = 8
"""Observations in every forward pass of a judged policy: as many again cost more than they save where frames are large, and a
process of many that has few games pays for all of them."""


def judged_policy(algorithm: AnyAlgorithm, module: nn.Module, parameters: Any) -> JudgedPolicy:
    """How the algorithm plays when it is judged; follows later changes of ``module``'s weights.

    The network sees ``ROWS`` observations in each pass, whatever the number of games. A matrix product rounds differently for
    different numbers of rows, and one other action makes another game; with the same number of rows each row has the same
    result wherever it stands and whatever the others hold (on one kind of processor, with one thread: tested).
    """
    # They take the places of games in rows that are not needed.
    no_games: list[Any] = [SimpleNamespace(random=np.random.default_rng(0), memory=None) for _ in range(ROWS)]

    def act(observation: Observation, games: Sequence[Game]) -> Any:
        actions = []
        for first in range(0, len(games), ROWS):
            some = list(games[first : first + ROWS])
            shown = each(lambda of, first=first: _filled(of[first : first + ROWS]), observation)
            chosen = algorithm.evaluation_action(parameters, module, shown, [*some, *no_games[len(some) :]])
            of_games = slice(len(some))
            actions.append(each(lambda of, of_games=of_games: of[of_games], chosen))
        return each(lambda *parts: np.concatenate(parts), *actions)

    return act


def _filled(some: NDArray[Any]) -> NDArray[Any]:
    """``some`` rows, and zeros up to ``ROWS``."""
    rows = np.zeros((ROWS, *some.shape[1:]), some.dtype)
    rows[: len(some)] = some
    return rows


_BY_ROM: Final[Mapping[str, Bounds]] = {"pong": (-21.0, 21.0)}  # each point counts 1, and one side has 21 at the end


def known_bounds(environment_id: str, made: gymnasium.Env[Any, Any]) -> Bounds | None:
    """The least and the most that one game of ``environment_id``, which was ``made`` as the job says, can bring; None where they
    are not known.

    Gymnasium's CartPole pays 1 a step up to its step limit, and its sparser reward option 0, then -1.
    """
    registered = gymnasium.registry.get(environment_id)
    by, steps = registered.entry_point if registered else None, made.spec.max_episode_steps if made.spec else None
    if registered and by == "ale_py.env:AtariEnv":
        return _BY_ROM.get(str(registered.kwargs.get("game")))
    return (-1.0, float(steps)) if steps and by == "gymnasium.envs.classic_control.cartpole:CartPoleEnv" else None


class Player:
    """Plays whole games of a policy as its algorithm is judged, with the weights it was last given. Owns up to ``places``
    environments, as many as can be made: ``close`` gives them up. Raises EnvironmentProblem where there is not one.

    epsilon: share of random moves, None for the one that the policy's parameters give. ``sitting``: its games in play.
    ``bounds``: as `known_bounds` says.
    """

    def __init__(self, policy: PolicyIdentity, places: int, epsilon: float | None = None) -> None:
        chosen = algorithm(policy.algorithm)
        seed_generators(seed_of("player", current_process().name))
        self._module = chosen.build(policy.spec, policy.params, policy.env_params).eval()
        self._envs = _copies(policy, places)
        self.bounds = known_bounds(policy.spec.id, self._envs[0])
        self.failures = RestartLimit()
        share = chosen.evaluation_epsilon(policy.params) if epsilon is None else epsilon
        judged = judged_policy(chosen, self._module, policy.params)
        self.sitting = Sitting(judged, self._envs, share, self.failures, policy.spec)

    def begin(self, weights: Weights, seed: int) -> None:
        """Play with ``weights`` the games of ``seed`` from now on; any in play are abandoned."""
        weights.load_into(self._module)
        self.sitting.begin(seed)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights that it can play with, by name."""
        return shapes_of(self._module)

    @contained()
    def step(self, each_game: Callable[[], None] = lambda: None) -> Sequence[Played]:
        """As ``Sitting`` says."""
        return self.sitting.step(each_game)

    def close(self) -> None:
        for env in self._envs:
            env.close()


def _copies(policy: PolicyIdentity, places: int) -> list[gymnasium.Env[Any, Any]]:
    envs: list[gymnasium.Env[Any, Any]] = []
    try:
        while len(envs) < places:
            envs.append(
                make_encoded_environment(
                    policy.spec.id, policy.env_params, for_scoring=True, restarting=True, spec=policy.spec
                )
            )
    except EnvironmentProblem as problem:
        if not envs:
            raise
        log.warning(
            "%d games side by side in this process, not %d, as there are no more copies: %s", len(envs), places, problem
        )
    return envs

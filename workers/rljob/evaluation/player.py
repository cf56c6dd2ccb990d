"""One process's part of an evaluation: a policy, and the environments that it plays in."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from multiprocessing import current_process
from typing import Any

import gymnasium

from rljob.algorithms import algorithm
from rljob.algorithms.shapes import shapes_of
from rljob.checkpoints.policy import PolicyIdentity
from rljob.envs import EnvironmentProblem, RestartLimit, make_single_environment
from rljob.envs.seeds import seed_generators, seed_of
from rljob.evaluation.best_possible import best_possible_return
from rljob.evaluation.policy import ROWS, judged_policy
from rljob.evaluation.score import Played, Sitting
from rljob.weights.flat import Weights

log = logging.getLogger(__name__)

SIDE_BY_SIDE = ROWS
"""The most games that a process plays at once: they share a forward pass."""


class Player:
    """Plays whole games of a policy as its algorithm is judged, with the weights it was last given. Owns up to ``places``
    environments, as many as can be made: ``close`` gives them up. Raises EnvironmentProblem where there is not one.

    epsilon: share of random moves, None for the one that the policy's parameters give. ``best_possible``: the most that one game
    can bring, None where nobody knows.
    """

    def __init__(self, policy: PolicyIdentity, places: int, epsilon: float | None = None) -> None:
        chosen = algorithm(policy.algorithm)
        seed_generators(seed_of("player", current_process().name))
        self._module = chosen.build(policy.spec, policy.params, policy.env_params).eval()
        self._envs = _copies(policy, places)
        self.best_possible = best_possible_return(policy.spec.id, self._envs[0])
        self.failures = RestartLimit(policy.env_params.max_failures_per_10000_steps)
        share = chosen.evaluation_epsilon(policy.params) if epsilon is None else epsilon
        self._sitting = Sitting(judged_policy(chosen, self._module, policy.params), self._envs, share, self.failures)

    def begin(self, weights: Weights, seed: int) -> None:
        """Play with ``weights`` the games of ``seed`` from now on; any in play are abandoned."""
        weights.load_into(self._module)
        self._sitting.begin(seed)

    def abandon(self) -> None:
        """Leave the games in play."""
        self._sitting.begin(0)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights that it can play with, by name."""
        return shapes_of(self._module)

    @property
    def playing(self) -> int:
        """Games in play."""
        return self._sitting.playing

    @property
    def free(self) -> int:
        """Games that may be dealt now."""
        return self._sitting.free

    def deal(self, game: int) -> None:
        """Begin game ``game``."""
        self._sitting.deal(game)

    def step(self) -> Sequence[Played]:
        """One step of every game in play; those that ended with it. Raises ``KeepsFailing``."""
        return self._sitting.step()

    @property
    def longest(self) -> int:
        """Steps so far of the longest game in play."""
        return self._sitting.longest

    def close(self) -> None:
        for env in self._envs:
            env.close()


def _copies(policy: PolicyIdentity, places: int) -> list[gymnasium.Env[Any, Any]]:
    envs: list[gymnasium.Env[Any, Any]] = []
    try:
        while len(envs) < places:
            envs.append(make_single_environment(policy.spec.id, policy.env_params, for_scoring=True, restarting=True))
    except EnvironmentProblem as problem:
        if not envs:
            raise
        log.warning(
            "%d games side by side in this process, not %d, as there are no more copies: %s", len(envs), places, problem
        )
    return envs

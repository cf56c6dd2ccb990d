"""One process's part of an evaluation: a policy, the environments that it plays in, and the games it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rljob.algorithms import algorithm
from rljob.api import RLJobSpec
from rljob.envs import RestartLimit, describe_environment, make_single_environment
from rljob.evaluation.policy import judged_policy
from rljob.evaluation.score import Played, play
from rljob.learner.flat import Weights

SIDE_BY_SIDE: Final = 10
"""Games that a process plays at once, to share a forward pass."""


class Player:
    """Plays whole games of a job's environment as its algorithm is judged, with the weights it was last given. Owns
    environments: ``close`` gives them up. Raises EnvironmentProblem where they cannot be made."""

    def __init__(self, job: RLJobSpec, most_games: int) -> None:
        parameters, environment = job.algorithm.resolved(), job.environment.resolved()
        chosen = algorithm(job.algorithm.name)
        self._epsilon = chosen.evaluation_epsilon(parameters)
        spec = describe_environment(job.environment.id, environment)
        self._module = chosen.build(spec, parameters, environment).eval()
        self._policy = judged_policy(chosen, self._module, parameters)
        self._envs = [
            make_single_environment(job.environment.id, environment, for_scoring=True, restarting=True)
            for _ in range(min(SIDE_BY_SIDE, most_games))
        ]
        self.failures = RestartLimit(environment.max_failures_per_10000_steps)

    def play(
        self, weights: Weights, games: Sequence[int], seed: int, each_step: Callable[[], None]
    ) -> Iterator[Played]:
        """As ``score.play``."""
        weights.load_into(self._module)
        yield from play(self._policy, self._envs, games, seed, self._epsilon, each_step, self.failures)

    def close(self) -> None:
        for env in self._envs:
            env.close()

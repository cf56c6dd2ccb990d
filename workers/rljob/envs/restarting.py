"""Environments that fail and are begun anew: counted, logged, and not for ever.

A failure costs the episode it happened in and nothing else. ``RestartingEnv`` stands around each environment of a vector that
steps them one by one (Sync, Async): the others do not notice. ``RestartingVector`` stands around the whole and mends what a row
cannot: a worker process that died, a vector class of the user's that raised.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rljob.envs.base import EnvironmentProblem, Observation, StepResult, VectorEnvironment, seed_of

log = logging.getLogger(__name__)

Env = gymnasium.Env[Any, Any]

FAILURE: Final = "rljob_failure"
"""Key of an info: why the environment was begun anew. In the info of a step, that step did not happen."""

WINDOW_STEPS: Final = 10_000
ALLOWED_FAILURES: Final = 10
"""One in 1,000 steps, far more than a sound simulator loses; a broken one is over it within moments."""


class KeepsFailing(RuntimeError):
    """Environments fail more often than the job allows. Not a matter of configuration: another machine may do better."""


class RestartLimit:
    """How often the environments of one process may fail: ``failures`` times within any 10,000 of their steps.

    Measured in steps and not in time, so that it means the same for fast and for slow environments.
    """

    def __init__(self, failures: int = ALLOWED_FAILURES) -> None:
        self.total = self._steps = 0
        self._allowed = failures
        self._failed_at: deque[int] = deque()

    def played(self, steps: int) -> None:
        """``steps`` more have been taken."""
        self._steps += steps

    def note(self, reason: str) -> None:
        """Count and log a failure. Raises ``KeepsFailing`` where it is one too many."""
        self.total += 1
        self._failed_at.append(self._steps)
        while self._failed_at[0] <= self._steps - WINDOW_STEPS:
            self._failed_at.popleft()
        if len(self._failed_at) > self._allowed:
            raise KeepsFailing(
                f"{reason}; failure {len(self._failed_at)} within {WINDOW_STEPS:,} steps, allowed are {self._allowed}"
            )
        log.warning("%s; restarted (failure %d of this process)", reason, self.total)


class RestartingEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One environment that is made anew when it raises.

    The step that failed comes back as a truncation without a meaning, with ``FAILURE`` in its info; the reset that follows
    begins an episode of the new environment, with a seed of its own. A reset that fails is tried once on a new environment.
    Raises what ``make`` and a second failing reset raise. ``alive`` is called after every step and reset, which may be one of
    many in a turn of the loop that steps it, and raises nothing.
    """

    def __init__(self, make: Callable[[], Env], alive: Callable[[], None] = lambda: None) -> None:
        super().__init__(make())
        self._make, self._alive = make, alive
        self._seed = self._lives = 0
        self._unseeded = False

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        try:
            return self.env.step(action)
        except Exception as error:  # noqa: BLE001 (a user's code: whatever it raises ends this life and no more)
            self._begin_anew()
            return _nothing(self.observation_space), 0.0, False, True, {FAILURE: str(error)}
        finally:
            self._alive()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._seed, self._unseeded = seed, False
        try:
            return self.env.reset(seed=self._due_seed() if self._unseeded else seed, options=options)
        except Exception as error:  # noqa: BLE001 (as above)
            reason = str(error)
        finally:
            self._alive()
        self._begin_anew()
        observation, info = self.env.reset(seed=self._due_seed(), options=options)
        return observation, {**info, FAILURE: reason}

    def _begin_anew(self) -> None:
        self.env.close()
        self.env = self._make()
        self._lives += 1
        self._unseeded = True

    def _due_seed(self) -> int:
        self._unseeded = False
        return seed_of(self._seed, "life", self._lives)


def _nothing(space: Any) -> Any:
    """An observation of zeros."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: _nothing(one) for name, one in space.spaces.items()}
    return np.zeros(space.shape, space.dtype)


class RestartingVector:
    """A vector environment that ``make(seed)`` gives, made anew as a whole when it raises ``EnvironmentProblem`` in a step.

    Failures, its own and those of single rows, are counted by ``limit``. Raises ``KeepsFailing``, and ``EnvironmentProblem``
    where the first one cannot be made or reset.
    """

    def __init__(self, make: Callable[[int], VectorEnvironment], seed: int, limit: RestartLimit) -> None:
        self._make, self._seed, self._limit = make, seed, limit
        self._env, self._lives = make(seed), 0
        self.spec, self.num_envs = self._env.spec, self._env.num_envs

    def reset(self, seed: int | None = None) -> Observation:
        return self._env.reset(seed)

    def step(self, actions: NDArray[np.int64], controls: NDArray[np.float32] | None = None) -> StepResult:
        try:
            result = self._env.step(actions, controls)
        except EnvironmentProblem as problem:
            return self._begin_anew(str(problem))
        self._limit.played(self.num_envs)
        for reason in result.failures:
            self._limit.note(reason)
        return result

    def close(self) -> None:
        self._env.close()

    def _begin_anew(self, reason: str) -> StepResult:
        """No step happened; every environment begins an episode."""
        failures = [reason]
        while True:
            self._limit.note(failures[-1])
            self._env.close()
            self._lives += 1
            try:
                self._env = self._make(seed_of(self._seed, "life", self._lives))
                observation = self._env.reset()
                break
            except EnvironmentProblem as problem:
                failures.append(str(problem))
        nowhere = np.zeros(self.num_envs, np.bool_)
        return StepResult(
            observation=observation,
            reward=np.zeros(self.num_envs, np.float32),
            terminated=nowhere,
            truncated=nowhere,
            life_lost=nowhere,
            final_observation=None,
            raw_frames=0,
            episodes=(),
            cut=~nowhere,
            failures=tuple(failures),
        )

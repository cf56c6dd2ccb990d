"""Environments of EnvPool, which steps them in threads of its own: ``backend: EnvPool``, in training and where it is scored.

By itself EnvPool resets at the next step, and spends a dummy step on it. It also resets the rows that it is asked to and gives
their first observations alone, so what has ended begins anew within the same step: here as ``AutoresetMode.DISABLED`` with
``reset_mask``, which ``GymnasiumVector`` makes SAME_STEP of. Observations are EnvPool's, with its own stack of frames.
"""

import difflib
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rljob.envs.base import EnvironmentProblem, UnknownEnvironment
from rljob.threads import usable_cores

_DECIDED_ELSEWHERE: Final = ("num_envs", "batch_size", "env_type", "seed", "env_seed", "gym_reset_return_info")


def pool_factory(environment_id: str, kwargs: Mapping[str, Any]) -> "Callable[..., PoolVector | PoolEnv]":
    """What makes ``environment_id``: a vector where it is given ``num_envs``, else a plain environment. Raises EnvironmentProblem
    where EnvPool is not installed, has no such id, or ``kwargs`` has what is decided here."""
    problem = f"environment {environment_id!r} of backend EnvPool"
    try:
        import envpool
    except ImportError as error:
        raise EnvironmentProblem(
            f"{problem}: it needs the package envpool, which this install lacks: pip install 'rljob[envpool]'"
        ) from error
    known = envpool.list_all_envs()
    if environment_id not in known:
        near = difflib.get_close_matches(environment_id.rpartition("/")[2], known, n=3, cutoff=0.5)
        advice = f"did you mean {' or '.join(near)}?" if near else "list what there is with envpool.list_all_envs()"
        raise UnknownEnvironment(f"{problem} is not known: {advice}")
    if taken := next((key for key in kwargs if key in _DECIDED_ELSEWHERE), None):
        raise EnvironmentProblem(f"{problem}: kwargs may not set {taken!r}, which rljob decides")
    return functools.partial(_made, environment_id)


def is_game_of_atari(environment_id: str) -> bool:
    """Whether EnvPool has it as an Atari game; False where EnvPool is not installed."""
    try:
        from envpool.registration import registry
    except ImportError:
        return False
    return bool(registry.specs.get(environment_id, ("",))[0] == "envpool.atari")


def _made(
    environment_id: str, num_envs: int | None = None, render_mode: str | None = None, **kwargs: Any
) -> "PoolVector | PoolEnv":
    if num_envs is not None:
        return PoolVector(environment_id, num_envs, kwargs)
    draws = {} if render_mode is None else {"render_mode": render_mode}
    return PoolEnv(PoolVector(environment_id, 1, {**kwargs, **draws}), render_mode)


class PoolVector(VectorEnv[Any, Any, Any]):
    """``num_envs`` environments. EnvPool's seeds are fixed when it makes them: a reset with a seed makes all of them anew, copy i
    with ``seed + i``."""

    def __init__(self, environment_id: str, num_envs: int, kwargs: Mapping[str, Any]) -> None:
        import envpool

        spec: Any = envpool.make_spec(environment_id, **kwargs)
        if spec.config.max_num_players > 1:
            raise ValueError(
                f"EnvPool plays it with {spec.config.max_num_players} players; only games of one are supported"
            )
        # EnvPool has bounds in float64 of observations in float32, and each of its pools makes its spaces again.
        warnings.filterwarnings("ignore", ".*precision lowered by casting", UserWarning)
        self.single_observation_space = spec.gymnasium_observation_space
        self.single_action_space = spec.gymnasium_action_space
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        own = {"num_threads": min(num_envs, usable_cores()), **kwargs}
        self._make = functools.partial(envpool.make, environment_id, env_type="gymnasium", num_envs=num_envs, **own)
        self._pool: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Observations [N, ...]; with ``reset_mask`` in ``options``, those of a row that began anew in rows that go on."""
        if seed is not None or self._pool is None:
            first = int(np.random.default_rng().integers(2**31)) if seed is None else seed
            self._pool = None  # its threads and memory go before those of the next
            self._pool = self._make(seed=[(first + copy) % 2**31 for copy in range(self.num_envs)])
        rows = np.flatnonzero(options["reset_mask"]) if options else np.arange(self.num_envs)
        fresh, info = self._pool.reset(rows.astype(np.int32))
        return _each(functools.partial(_spread, self.num_envs, info["env_id"]), fresh), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return self._pool.step(actions)  # type: ignore[no-any-return]

    def render(self) -> Any:
        return self._pool.render()

    def close_extras(self, **kwargs: Any) -> None:
        self._pool = None


class PoolEnv(gymnasium.Env[Any, Any]):
    """The one environment of ``vector`` as a plain one, for trials, scores and videos: so that what was trained on is judged."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, vector: PoolVector, render_mode: str | None) -> None:
        self._vector, self.render_mode = vector, render_mode
        vector.reset()  # what EnvPool cannot make is told now, and not with the first game
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self._vector.reset(seed=seed)
        return _each(_only, observation), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = self._vector.step(np.asarray([action]))
        return _each(_only, observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def render(self) -> Any:
        return self._vector.render()[0]

    def close(self) -> None:
        self._vector.close()


def _each(change: Callable[[Any], Any], observation: Any) -> Any:
    """``change`` of an array, or of each in a Dict of spaces."""
    return (
        {key: _each(change, part) for key, part in observation.items()}
        if isinstance(observation, dict)
        else change(observation)
    )


def _spread(num_envs: int, rows: Any, fresh: Any) -> Any:
    whole = np.repeat(fresh[:1], num_envs, axis=0)
    whole[rows] = fresh
    return whole


def _only(observations: Any) -> Any:
    return observations[0]

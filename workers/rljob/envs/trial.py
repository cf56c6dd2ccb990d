"""Whether an environment of the user's own does what Gymnasium asks of it, tried for a few steps before anything is trained:
which function, what was expected, what came."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rljob.envs import single
from rljob.envs.base import EnvironmentProblem
from rljob.envs.received import close, observed, rewarded
from rljob.envs.spaces import frame_format, num_actions
from rljob.envs.target import AtariGame, RegisteredEnvironment, UserFactory, resolve
from rljob.loading import PLUGIN_FAILURES, authors_line, short, shown, told

if TYPE_CHECKING:
    from rljob.api import EnvironmentParameters

log = logging.getLogger(__name__)

_LEAST_STEPS, _MOST_STEPS = 8, 64
_SEED = 1_234_567_890
_SEED_ADVICE = (
    "with seed=0 it does not fail: a seed may be any whole number below 2**31; where it is the number of one of n scenarios, "
    "take seed % n"
)
_GIVES = {
    "reset": "reset(seed=..., options=...) gives (observation, info)",
    "step": "step(action) gives (observation, reward, terminated, truncated, info)",
}


def try_environment(environment_id: str, parameters: EnvironmentParameters) -> None:
    """Reset it once and step it with its actions in turn. Atari games, and what gives vector environments alone, are not tried.

    An environment may fail now and then, and a job says how often (``maxFailuresPer10000Steps``): so an exception counts only
    where a second trial, of a new environment, does not pass either. What is given wrongly is given wrongly each time.

    Raises EnvironmentProblem, with the author's own line where an exception was raised.
    """
    target = resolve(environment_id, parameters)
    if isinstance(target, AtariGame) or (isinstance(target, UserFactory) and target.vector_only):
        return
    try:
        _try_once(environment_id, target, parameters)
    except EnvironmentProblem as problem:
        if problem.__cause__ is None:
            raise
        _try_once(environment_id, target, parameters)
        log.warning(
            "%s; a second trial went well, so it is one of those that maxFailuresPer10000Steps may allow", problem
        )


def _try_once(
    environment_id: str, target: RegisteredEnvironment | UserFactory, parameters: EnvironmentParameters
) -> None:
    env = single.as_written(target)
    try:
        _Trial(environment_id, env, parameters).run()
    finally:
        close(env, environment_id)


class _Trial:
    def __init__(self, environment_id: str, env: gymnasium.Env[Any, Any], parameters: EnvironmentParameters) -> None:
        self._id, self._env = environment_id, env
        self._frame = frame_format(environment_id, env.observation_space)
        self._actions = parameters.actions or range(num_actions(environment_id, env.action_space))
        if "frame_stack" in parameters.model_fields_set and parameters.frame_stack > 1 and not self._frame.is_image:
            log.warning(
                "%s; frameStack %d changes nothing: only images of bytes are stacked, so put what was seen before into the "
                "observation itself (gymnasium.wrappers.FrameStackObservation in a module:factory of your own)",
                self._problem(f"observations are {self._frame.dtype} {list(self._frame.shape)}"),
                parameters.frame_stack,
            )

    def run(self) -> None:
        self._reset()
        for step in range(min(max(_LEAST_STEPS, len(self._actions)), _MOST_STEPS)):
            if self._step(self._actions[step % len(self._actions)]):
                self._reset()

    def _reset(self) -> None:
        try:
            observation, info = self._call("reset", 2, lambda: self._env.reset(seed=_SEED))
        except EnvironmentProblem as problem:
            try:
                self._env.reset(seed=0)
            except PLUGIN_FAILURES:
                raise problem from problem.__cause__
            raise EnvironmentProblem(f"{problem}; {_SEED_ADVICE}") from problem.__cause__
        self._taken("reset", lambda: observed(observation, self._frame))
        self._expect("reset: info", isinstance(info, dict), "a dict", info)

    def _step(self, action: int) -> bool:
        """Whether the episode has ended."""
        observation, reward, terminated, truncated, info = self._call(
            "step", 5, lambda: self._env.step(np.int64(action))
        )
        self._taken("step", lambda: (observed(observation, self._frame), rewarded(reward)))
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            flag = np.asarray(value)
            self._expect(f"step: {name}", flag.shape == () and flag.dtype.kind in "biu", "True or False", value)
        self._expect("step: info", isinstance(info, dict), "a dict", info)
        return bool(terminated or truncated)

    def _taken(self, function: str, take: Callable[[], object]) -> None:
        try:
            take()
        except ValueError as wrong:
            raise self._problem(f"{function}: {wrong}") from None

    def _call(self, function: str, values: int, call: Callable[[], Any]) -> Any:
        try:
            found = call()
        except PLUGIN_FAILURES as error:
            # Where the user's own code is not to be seen, what it gave was wrong for a wrapper.
            contract = "" if authors_line(error) else f"; {_GIVES[function]}"
            raise self._problem(f"{function} failed: {told(error)}{contract}") from error
        if not isinstance(found, tuple) or len(found) != values:
            raise self._problem(f"{_GIVES[function]}, got {shown(found)}")
        return found

    def _expect(self, function: str, holds: bool, expected: str, came: object) -> None:
        if not holds:
            raise self._problem(f"{function}: expected {expected}, got {shown(came)}")

    def _problem(self, text: str) -> EnvironmentProblem:
        return EnvironmentProblem(f"environment {short(self._id)!r}: {text}")

"""Whether an environment of the user's own does what Gymnasium asks of it, tried for a few steps before anything is trained:
which function, what was expected, what came."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rljob.envs import single
from rljob.envs.base import EnvironmentProblem
from rljob.envs.encoding import Encoding, any_action
from rljob.envs.factory import describe_environment
from rljob.envs.received import RENDER_MODE, close, picture_rate, pictures, rewarded
from rljob.envs.spec import EnvironmentSpec
from rljob.envs.target import AtariGame, RegisteredEnvironment, UserFactory, resolve
from rljob.loading import PLUGIN_FAILURES, authors_line, short, shown, told
from rljob.observation import each

if TYPE_CHECKING:
    from rljob.api import EnvironmentParameters

log = logging.getLogger(__name__)

_LEAST_STEPS, _MOST_STEPS = 8, 64
_ENOUGH_SECONDS = 10.0
"""After this no more than the least steps are tried: 64 of a slow simulator would keep its user waiting for minutes."""
_SEED = 1_234_567_890
_SEED_ADVICE = (
    "with seed=0 it does not fail: a seed may be any whole number below 2**31; where it is the number of one of n scenarios, "
    "take seed % n"
)
_GIVES = {
    "reset": "reset(seed=..., options=...) gives (observation, info)",
    "step": "step(action) gives (observation, reward, terminated, truncated, info)",
}


def try_environment(
    environment_id: str, parameters: EnvironmentParameters, spec: EnvironmentSpec | None = None
) -> None:
    """Reset it once and step it with its actions in turn, eight times at least, and no more where it is slow. Atari games, and
    what gives vector environments alone, are not tried.

    An environment may fail now and then (`RestartLimit`), so an exception counts only
    where a second trial, of a new environment, does not pass either. What is given wrongly is given wrongly each time.

    ``spec``: what it was described as; else it is described. Raises EnvironmentProblem, with the author's own line where an
    exception was raised.
    """
    target = resolve(environment_id, parameters)
    if isinstance(target, AtariGame) or (isinstance(target, UserFactory) and target.vector_only):
        return
    if parameters.encoder is not None:  # what is tried is what it encodes
        spec, parameters = None, parameters.model_copy(update={"encoder": None})
    spec = spec or describe_environment(environment_id, parameters)
    try:
        _try_once(environment_id, target, parameters, spec)
    except EnvironmentProblem as problem:
        if problem.__cause__ is None:
            raise
        _try_once(environment_id, target, parameters, spec)
        log.warning("%s; a second trial went well, so it is one of those that a job goes on after", problem)
    if isinstance(target, UserFactory) and target.draws:  # others may end a process that has no display
        _try_drawing(environment_id, target)


def _try_drawing(environment_id: str, target: UserFactory) -> None:
    """Say what is wrong with its pictures, where it says that it draws some: training does without."""
    try:
        with contextlib.closing(single.as_written(target, render_mode=RENDER_MODE)) as env:
            picture_rate(env, environment_id)
            env.reset(seed=_SEED)
            for _ in islice(
                pictures(env, environment_id), 2 if RENDER_MODE in env.metadata.get("render_modes", ()) else 0
            ):
                env.step(env.action_space.sample())
    except EnvironmentProblem as problem:
        log.warning("%s; it can be trained in, and `rljob play` can't show it", problem)
    except PLUGIN_FAILURES:
        pass  # a step that fails now and then, which the trial of steps tells


def _try_once(
    environment_id: str,
    target: RegisteredEnvironment | UserFactory,
    parameters: EnvironmentParameters,
    spec: EnvironmentSpec,
) -> None:
    env = single.as_written(target)
    try:
        _Trial(environment_id, env, parameters, spec).run()
    finally:
        close(env, environment_id)


class _Trial:
    def __init__(
        self,
        environment_id: str,
        env: gymnasium.Env[Any, Any],
        parameters: EnvironmentParameters,
        spec: EnvironmentSpec,
    ) -> None:
        self._id, self._env = environment_id, env
        self._spec, self._encoding = spec, Encoding(spec, parameters)
        self._actions = self._encoding.action_space
        self._generator = np.random.default_rng(_SEED)
        self._observation: Any = None
        if "frame_stack" in parameters.model_fields_set and parameters.frame_stack > 1 and spec.stack == 1:
            log.warning(
                "%s; frameStack %d changes nothing: only images are stacked, so put what was seen before into the "
                "observation itself (gymnasium.wrappers.FrameStackObservation in a module:factory of your own)",
                self._problem(f"its observation has {', '.join(map(str, spec.observation))}"),
                parameters.frame_stack,
            )

    def run(self) -> None:
        self._reset()
        enough = time.monotonic() + _ENOUGH_SECONDS
        for step in range(min(max(_LEAST_STEPS, *self._spec.action_sizes, 0), _MOST_STEPS)):
            if step >= _LEAST_STEPS and time.monotonic() > enough:
                break
            if self._step(self._action(step)):
                self._reset()

    def _action(self, step: int) -> Any:
        """The actions of one Discrete in turn; of other spaces, and where a mask says which are allowed, any."""
        if isinstance(self._actions, gymnasium.spaces.Discrete) and self._spec.mask is None:
            return step % int(self._actions.n)
        return any_action(self._spec, each(lambda of: of[None], self._observation), self._generator)

    def _see(self, observation: Any, info: Any) -> None:
        self._observation = self._encoding.observation(observation, info)

    def _reset(self) -> None:
        try:
            observation, info = self._call("reset", 2, lambda: self._env.reset(seed=_SEED))
        except EnvironmentProblem as problem:
            try:
                self._env.reset(seed=0)
            except PLUGIN_FAILURES:
                raise problem from problem.__cause__
            raise EnvironmentProblem(f"{problem}; {_SEED_ADVICE}") from problem.__cause__
        self._expect("reset: info", isinstance(info, dict), "a dict", info)
        self._taken("reset", lambda: self._see(observation, info))

    def _step(self, action: Any) -> bool:
        """Whether the episode has ended."""
        taken = self._encoding.action(action)
        observation, reward, terminated, truncated, info = self._call("step", 5, lambda: self._env.step(taken))
        self._taken("step", lambda: self._see(observation, info))
        self._taken("step", lambda: rewarded(reward))
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

"""The one guard around a user's environment: what it gives is taken over where it is given, checked and copied."""

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rljob.api.episode_metrics import LARGEST
from rljob.envs.base import EnvironmentProblem, seed_generators
from rljob.envs.encoding import Encoding, first_odd
from rljob.envs.meter import EPISODE_METRICS, reported
from rljob.envs.target import what_it_lacks
from rljob.loading import PLUGIN_FAILURES, contained, short, shown, told

log = logging.getLogger(__name__)

RENDER_MODE: Final = "rgb_array"
_MUJOCO: Final = (
    "; MuJoCo draws with OpenGL: where there is no display it needs MUJOCO_GL=egl or MUJOCO_GL=osmesa, and that library of the "
    "system's (libegl1 or libosmesa6)"
)


NOTHING: Final = object()
"""In place of what an environment gave, where it raised an exception."""


class Received(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Copy ``index`` of an environment; stands right around it, below every wrapper of ours, and speaks ``encoding``'s spaces,
    save that it takes actions as its author does with ``own_actions``.

    Infos stay behind, for they are of any type, save the numbers that an episode ends with; with ``keeps_infos`` they are handed
    on. A seed is one for this process's
    generators, too, for authors draw from them. Whatever goes wrong, an observation of another shape or with what is no finite
    number included, is an EnvironmentProblem that says in which of the copies.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        encoding: Encoding,
        environment_id: str,
        index: int,
        *,
        own_actions: bool = False,
        keeps_infos: bool = False,
    ) -> None:
        super().__init__(env)
        self._encoding, self._id, self._index = encoding, environment_id, index
        self._steps = 0
        self._own_actions, self._keeps_infos = own_actions, keeps_infos
        self.observation_space = encoding.observation_space
        self.action_space = env.action_space if own_actions else encoding.action_space

    @contained()
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._steps = self._encoding.empty_masks = 0
        if seed is not None:
            seed_generators(seed)
        given: Any = NOTHING
        try:
            given = self.env.reset(seed=seed, options=options)
            observation, info = given
            _expect_dict(info)
            return self._encoding.observation(observation, info), {**info} if self._keeps_infos else {}
        except PLUGIN_FAILURES as error:
            raise self._problem("reset", error, given) from error

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        given: Any = NOTHING
        try:
            given = self.env.step(action if self._own_actions else self._encoding.action(action))
            observation, reward, terminated, truncated, info = given
            _expect_dict(info)
            seen = self._encoding.observation(observation, info)
            number, ended, cut = rewarded(reward), _flag("terminated", terminated), _flag("truncated", truncated)
            masks = {"empty_action_masks": float(count)} if (count := self._encoding.empty_masks) else {}
            told = {EPISODE_METRICS: reported(info) | masks} if ended or cut else {}
            return seen, number, ended, cut, {**info, **told} if self._keeps_infos else told
        except PLUGIN_FAILURES as error:
            raise self._problem("step", error, given) from error

    def close(self) -> None:
        close(self.env, self._id)

    def _problem(self, where: str, error: BaseException, given: Any) -> EnvironmentProblem:
        """What to raise for ``error``, in ``where``; ``given``: what the environment gave, NOTHING where it raised it itself."""
        when = f", in step {self._steps} of the episode" if self._steps else ""
        return EnvironmentProblem(
            f"environment {self._index} of {short(self._id)!r} failed in {where}(): {told(error)}{when}",
            environment=self._index,
        )


def _expect_dict(info: Any) -> None:
    if not isinstance(info, dict):
        raise ValueError(f"info: expected a dict, got {shown(info)}")


def _flag(name: str, given: Any) -> bool:
    """``given`` as one truth; an array of none or several is none."""
    if not isinstance(given, bool | np.bool_) and (np.shape(given) != () or np.asarray(given).dtype.kind not in "biu"):
        raise ValueError(f"{name}: expected True or False, got {shown(given)}")
    return bool(given)


def rewarded(given: Any) -> float:
    """``given`` as a reward. Raises ValueError unless it is one number less than ``LARGEST`` in size."""
    if isinstance(given, int | float) and abs(given) < LARGEST:
        return float(given)
    number = np.asarray(given)
    if number.shape != () or number.dtype.kind not in "biuf" or not abs(float(number)) < LARGEST:
        raise ValueError(f"reward: expected a finite number less than {LARGEST:g} in size, got {shown(given)}")
    return float(number)


def expect_finite(what: str, numbers: Any, largest: float = math.inf) -> None:
    """Raise ValueError with the first of ``numbers`` that is not less than ``largest`` in size. ``what``: what they are, and what
    each index of them says."""
    if numbers.dtype.kind == "f" and not (fine := np.abs(numbers) < largest).all():
        bound = "" if largest == math.inf else f" less than {largest:g} in size"
        raise ValueError(f"expected finite {what}{bound}, got {first_odd(numbers, fine)}")


def picture_rate(env: gymnasium.Env[Any, Any], environment_id: str) -> float:
    """Pictures a second as its metadata have them, 30 where they say nothing. Raises EnvironmentProblem."""
    metadata: Any = env.metadata
    rate = metadata.get("render_fps", 30) if isinstance(metadata, Mapping) else metadata
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.number) or not 0 < rate < math.inf:
        of = "render_fps: expected a number above 0" if isinstance(metadata, Mapping) else "expected a dict"
        raise EnvironmentProblem(f"environment {short(environment_id)!r}: metadata: {of}, got {shown(rate)}")
    return float(rate)


def pictures(env: gymnasium.Env[Any, Any], environment_id: str) -> Iterator[NDArray[np.uint8]]:
    """What ``env`` draws, made with ``render_mode="rgb_array"``, whenever the next is asked for: u8[H, W, 3], or with an alpha
    channel, or u8[H, W] without colours; all of one size. Raises EnvironmentProblem where ``render()`` gives anything else."""
    first: tuple[int, ...] | None = None
    while True:
        try:
            drawn: Any = env.render()
        except PLUGIN_FAILURES as error:
            why = what_it_lacks(error) if str(error) else "no render()"
            if (
                not isinstance(error, gymnasium.error.DependencyNotInstalled)
                and "mujoco" in type(env.unwrapped).__module__
            ):
                why += _MUJOCO
            raise EnvironmentProblem(f"environment {short(environment_id)!r} cannot be drawn: {why}") from error
        shape = drawn.shape if isinstance(drawn, np.ndarray) and drawn.dtype == np.uint8 else ()
        whole = len(shape) > 1 and 0 not in shape and shape[2:] in ((), (3,), (4,))
        first = first or shape
        if not whole or shape != first:
            size = f", as large as before, {list(first)}" if whole else ""
            came = f"a list of {len(drawn)}" if isinstance(drawn, list) else shown(drawn)
            expected = f"expected a picture, uint8 [height, width, 3]{size}"
            raise EnvironmentProblem(f"environment {short(environment_id)!r}: render: {expected}, got {came}")
        yield drawn


def close(env: Any, environment_id: str) -> None:
    """Close what a user has written; a failure in it is a line of the log and hides nothing that happened before."""
    try:
        env.close()
    except PLUGIN_FAILURES as error:
        log.warning("environment %r failed in close(): %s", short(environment_id), told(error))

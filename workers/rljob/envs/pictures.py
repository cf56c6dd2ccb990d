"""What an environment draws of itself, looked at as it is given: ``render()`` and the rate in its ``metadata``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rljob.envs.base import EnvironmentProblem
from rljob.envs.target import what_it_lacks
from rljob.loading import PLUGIN_FAILURES, short, shown

if TYPE_CHECKING:
    from rljob.api import EnvironmentParameters

_MUJOCO = (
    "; MuJoCo draws with OpenGL: where there is no display it needs MUJOCO_GL=egl or MUJOCO_GL=osmesa, and that library of the "
    "system's (libegl1 or libosmesa6)"
)
_RAW_FRAMES_PER_SECOND: Final = 60  # of the Atari 2600 (NTSC)
RENDER_MODE: Final = "rgb_array"


class Pictures:
    """The pictures of ``env``, which was made with ``render_mode="rgb_array"``."""

    def __init__(self, env: gymnasium.Env[Any, Any], environment_id: str) -> None:
        self._env, self._id = env, environment_id
        self._shape: tuple[int, ...] | None = None

    def rate(self, parameters: EnvironmentParameters) -> float:
        """Pictures a second, one a step. Raises EnvironmentProblem where the metadata say none."""
        if hasattr(self._env.unwrapped, "ale"):
            return _RAW_FRAMES_PER_SECOND / parameters.atari.frame_skip
        metadata: Any = self._env.metadata
        if not isinstance(metadata, Mapping):
            raise self._problem(f": metadata: expected a dict, got {shown(metadata)}")
        rate = metadata.get("render_fps", 30)
        if isinstance(rate, bool) or not isinstance(rate, int | float | np.number) or not 0 < rate < math.inf:
            raise self._problem(f": metadata: render_fps: expected a number above 0, got {shown(rate)}")
        return float(rate)

    def next(self) -> NDArray[np.uint8]:
        """u8[H, W, 3], or with an alpha channel, all of one size; u8[H, W] of an environment without colours.

        Raises EnvironmentProblem where ``render()`` fails, or gives anything else.
        """
        try:
            drawn = self._env.render()
        except PLUGIN_FAILURES as error:
            why = what_it_lacks(error) if str(error) else "no render()"
            mujoco = "mujoco" in type(self._env.unwrapped).__module__
            why += _MUJOCO if mujoco and not isinstance(error, gymnasium.error.DependencyNotInstalled) else ""
            raise self._problem(f" cannot be drawn: {why}") from error
        if drawn is None:
            raise self._problem(f" draws nothing with render_mode {RENDER_MODE!r}")
        shape = drawn.shape if isinstance(drawn, np.ndarray) and drawn.dtype == np.uint8 else ()
        if len(shape) < 2 or 0 in shape or shape[2:] not in ((), (3,), (4,)):
            came = f"a list of {len(drawn)}" if isinstance(drawn, list) else shown(drawn)
            raise self._problem(f": render: expected a picture, uint8 [height, width, 3], got {came}")
        if self._shape not in (None, shape):
            raise self._problem(f": render: expected pictures of one size, got {shape} after {self._shape}")
        self._shape = shape
        return drawn

    def _problem(self, words: str) -> EnvironmentProblem:
        return EnvironmentProblem(f"environment {short(self._id)!r}{words}")

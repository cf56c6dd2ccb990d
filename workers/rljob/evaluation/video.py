"""One game as an MP4: the real screen in colour, not what the network sees."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import imageio.v2 as imageio
import numpy as np
from numpy.typing import NDArray

from rljob.encoders.edge import make_encoded_environment
from rljob.envs import EnvironmentProblem
from rljob.envs.target import what_it_lacks
from rljob.evaluation.score import JudgedPolicy, Score, score
from rljob.files import replacing
from rljob.loading import PLUGIN_FAILURES, short

if TYPE_CHECKING:
    from rljob.api import EnvironmentParameters
    from rljob.envs.spec import EnvironmentSpec

_MUJOCO = (
    "; MuJoCo draws with OpenGL: where there is no display it needs MUJOCO_GL=egl or MUJOCO_GL=osmesa, and that library of the "
    "system's (libegl1 or libosmesa6)"
)
_RAW_FRAMES_PER_SECOND = 60  # of the Atari 2600 (NTSC)
_SMALLEST_HEIGHT = 400


def record_game(
    policy: JudgedPolicy,
    environment_id: str,
    parameters: EnvironmentParameters,
    path: Path,
    *,
    seed: int = 0,
    epsilon: float = 0.0,
    spec: EnvironmentSpec | None = None,
) -> Score:
    """Play one game as the scorer would and write it to ``path`` (.mp4, H.264); returns its score.

    One picture a step, at the speed at which the game is played by people. ``path`` appears only once it is complete. ``spec``:
    what the environment was described as; without it its action has to be one Discrete.
    Raises EnvironmentProblem where the environment cannot draw itself.
    """
    env = make_encoded_environment(environment_id, parameters, for_scoring=True, render_mode="rgb_array", spec=spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(env), replacing(path) as new:
        rate = _pictures_per_second(env, parameters)
        writer = imageio.get_writer(new, format="FFMPEG", fps=rate, codec="libx264", macro_block_size=2)
        with writer:
            result = score(
                policy,
                env,
                1,
                seed,
                epsilon,
                each_step=lambda: writer.append_data(_picture(env, environment_id)),
                spec=spec,
            )
            writer.append_data(_picture(env, environment_id))
    return result


def _pictures_per_second(env: gymnasium.Env[Any, Any], parameters: EnvironmentParameters) -> float:
    if hasattr(env.unwrapped, "ale"):
        return _RAW_FRAMES_PER_SECOND / parameters.atari.frame_skip
    return float(env.metadata.get("render_fps", 30))


def _picture(env: gymnasium.Env[Any, Any], environment_id: str) -> NDArray[np.uint8]:
    """u8[H, W, 3], small screens enlarged by a whole factor so that their pixels stay sharp."""
    try:
        screen = env.render()
    except PLUGIN_FAILURES as error:
        why = what_it_lacks(error) if str(error) else "no render()"
        if not isinstance(error, gymnasium.error.DependencyNotInstalled) and "mujoco" in type(env.unwrapped).__module__:
            why += _MUJOCO
        raise EnvironmentProblem(f"environment {short(environment_id)!r} cannot be drawn: {why}") from error
    if not isinstance(screen, np.ndarray):
        raise EnvironmentProblem(f"environment {short(environment_id)!r} draws nothing with render_mode 'rgb_array'")
    factor = -(-_SMALLEST_HEIGHT // screen.shape[0]) if screen.shape[0] < _SMALLEST_HEIGHT else 1
    enlarged = screen.repeat(factor, axis=0).repeat(factor, axis=1)
    return enlarged[: enlarged.shape[0] // 2 * 2, : enlarged.shape[1] // 2 * 2]

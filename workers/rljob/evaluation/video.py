"""One game as an MP4: the real screen in colour, not what the network sees."""

import contextlib
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
from numpy.typing import NDArray

from rljob.api import EnvironmentParameters
from rljob.encoders import make_encoded_environment
from rljob.envs.received import RENDER_MODE, picture_rate, pictures
from rljob.envs.spec import EnvironmentSpec
from rljob.evaluation.score import JudgedPolicy, Played, Sitting
from rljob.files import replacing

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
) -> Played:
    """Play one game as the scorer would and write it to ``path`` (.mp4, H.264).

    One picture a step, at the speed at which the game is played by people. ``path`` appears only once it is complete. ``spec``:
    what the environment was described as; without it its action has to be one Discrete.
    Raises EnvironmentProblem where the environment cannot draw itself, or draws something else than pictures.
    """
    env = make_encoded_environment(environment_id, parameters, for_scoring=True, render_mode=RENDER_MODE, spec=spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(env), replacing(path) as new:
        drawn, is_atari = pictures(env, environment_id), hasattr(env.unwrapped, "ale")
        rate = _RAW_FRAMES_PER_SECOND / parameters.atari.frame_skip if is_atari else picture_rate(env, environment_id)
        sitting = Sitting(policy, [env], epsilon, spec=spec)
        sitting.begin(seed)
        sitting.deal(0)
        writer = imageio.get_writer(new, format="FFMPEG", fps=rate, codec="libx264", macro_block_size=2)
        with writer:
            while sitting.playing:
                writer.append_data(_enlarged(next(drawn)))
                ended = sitting.step()
            writer.append_data(_enlarged(next(drawn)))
    return ended[0]


def _enlarged(screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Small screens enlarged by a whole factor so that their pixels stay sharp, of even height and width."""
    factor = -(-_SMALLEST_HEIGHT // screen.shape[0]) if screen.shape[0] < _SMALLEST_HEIGHT else 1
    enlarged = screen.repeat(factor, axis=0).repeat(factor, axis=1)
    return enlarged[: enlarged.shape[0] // 2 * 2, : enlarged.shape[1] // 2 * 2]

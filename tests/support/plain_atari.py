"""An Atari game behind Gymnasium's own wrappers, written out: it shares nothing with the code under test."""

from typing import Any

import gymnasium
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from rljob.api import EnvironmentParameters


def plain_atari(environment_id: str, parameters: EnvironmentParameters) -> gymnasium.Env[Any, Any]:
    atari = parameters.atari
    env: gymnasium.Env[Any, Any] = gymnasium.make(
        environment_id,
        frameskip=1,
        repeat_action_probability=atari.sticky_action_probability,
        max_num_frames_per_episode=parameters.max_episode_raw_frames,
    )
    env = AtariPreprocessing(env, atari.noop_max, atari.frame_skip, atari.frame_size, terminal_on_life_loss=False)
    return FrameStackObservation(env, parameters.frame_stack, padding_type="zero")

"""The checks that both builders make of what they are given."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from rljob.experience.layout import ChunkLayout
from rljob.experience.unroll import UnrollLayout


def check_builder(num_envs: int, gamma: float) -> None:
    """Raise ``ValueError`` unless there are environments and ``gamma`` is a discount."""
    if num_envs < 1:
        raise ValueError(f"experience builder: num_envs is {num_envs}, it must be at least 1")
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"experience builder: gamma is {gamma}, it must lie in [0, 1]")


def check_first_observation(observation: NDArray[Any], layout: ChunkLayout | UnrollLayout, num_envs: int) -> None:
    """Raise ``ValueError`` unless ``observation`` is ``[N, S, *F*]`` of the layout."""
    expected = (num_envs, layout.stack, *layout.frame_shape)
    if observation.shape != expected or observation.dtype != layout.frame_dtype:
        raise ValueError(
            f"observation is {observation.dtype}{list(observation.shape)}, "
            f"the layout needs {layout.frame_dtype}{list(expected)}"
        )

"""Whole jobs to start from: ``spec.preset`` names one, and what is written beside it wins."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from rljob.api.presets.atari import APEX_ATARI, IMPALA_ATARI
from rljob.api.presets.cartpole import CARTPOLE_APEX, CARTPOLE_IMPALA
from rljob.api.presets.pong import PONG_APEX, PONG_CLIPPED_SURROGATE, PONG_VTRACE
from rljob.api.presets.preset import Preset

PresetName = Literal[
    "PongVTrace", "PongClippedSurrogate", "PongApeX", "CartPoleApeX", "CartPoleIMPALA", "ApeXAtari", "ImpalaAtari"
]
PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            PONG_VTRACE,
            PONG_CLIPPED_SURROGATE,
            PONG_APEX,
            CARTPOLE_APEX,
            CARTPOLE_IMPALA,
            APEX_ATARI,
            IMPALA_ATARI,
        )
    }
)
"""Every preset by its name, in the order in which people are shown them."""

__all__ = ["PRESETS", "Preset", "PresetName"]

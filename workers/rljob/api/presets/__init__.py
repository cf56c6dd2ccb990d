"""Whole jobs to start from: ``spec.preset`` names one, and what is written beside it wins."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from rljob.api.presets.atari import APEX_ATARI, IMPALA_ATARI
from rljob.api.presets.cartpole import CARTPOLE_APEX, CARTPOLE_IMPALA
from rljob.api.presets.pong import PONG_APEX, PONG_PPO, PONG_VTRACE
from rljob.api.presets.ppo import PPO_ATARI, PPO_MUJOCO, PPO_VECTOR
from rljob.api.presets.preset import Preset
from rljob.api.presets.sac import SAC_MUJOCO, SAC_VECTOR

PresetName = Literal[
    "PongVTrace",
    "PongPPO",
    "PongApeX",
    "CartPoleApeX",
    "CartPoleIMPALA",
    "ApeXAtari",
    "ImpalaAtari",
    "PPOVector",
    "PPOAtari",
    "PPOMuJoCo",
    "SACVector",
    "SACMuJoCo",
]
PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            PONG_VTRACE,
            PONG_PPO,
            PONG_APEX,
            CARTPOLE_APEX,
            CARTPOLE_IMPALA,
            APEX_ATARI,
            IMPALA_ATARI,
            PPO_VECTOR,
            PPO_ATARI,
            PPO_MUJOCO,
            SAC_VECTOR,
            SAC_MUJOCO,
        )
    }
)
"""Every preset by its name, in the order in which people are shown them."""

__all__ = ["PRESETS", "Preset", "PresetName"]

"""Environments: Gymnasium and Atari behind one vector interface with exact episode ends."""

from rljob.envs.base import EnvironmentProblem, EpisodeRecord, Observation, StepResult, VectorEnvironment
from rljob.envs.factory import (
    describe_both,
    describe_environment,
    describe_rewards,
    make_restarting_environment,
    make_single_environment,
    make_vector_environment,
)
from rljob.envs.gymnasium_vector import make_device_vector
from rljob.envs.restarting import KeepsFailing, RestartLimit
from rljob.envs.spec import EnvironmentSpec, hand_over
from rljob.envs.trial import apart, describe_environment_apart, environment_of, try_environment

__all__ = [
    "EnvironmentProblem",
    "EnvironmentSpec",
    "EpisodeRecord",
    "KeepsFailing",
    "Observation",
    "RestartLimit",
    "StepResult",
    "VectorEnvironment",
    "apart",
    "describe_both",
    "describe_environment",
    "describe_environment_apart",
    "describe_rewards",
    "environment_of",
    "hand_over",
    "make_device_vector",
    "make_restarting_environment",
    "make_single_environment",
    "make_vector_environment",
    "try_environment",
]

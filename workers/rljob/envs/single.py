"""One plain environment, built from Gymnasium's own parts: for scoring, for video, and for Sync and Async backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.wrappers import FrameStackObservation

from rljob.envs import wrappers
from rljob.envs.base import EnvironmentProblem
from rljob.envs.received import Received
from rljob.envs.spaces import frame_format
from rljob.envs.target import (
    AtariGame,
    RegisteredEnvironment,
    Target,
    UserFactory,
    named_authors,
    register,
    what_it_lacks,
)
from rljob.loading import PLUGIN_FAILURES, short, shown

if TYPE_CHECKING:
    from rljob.api import EnvironmentParameters

Env = gymnasium.Env[Any, Any]


def build(target: Target, parameters: EnvironmentParameters, index: int = 0, *, render_mode: str | None = None) -> Env:
    """Copy ``index`` of the environment that ``target`` names, with observations [S, *F*] and the game's own rewards.

    Raises EnvironmentProblem when it cannot be made or has spaces that are not supported.
    """
    if isinstance(target, AtariGame):
        return _atari(target, parameters, render_mode)
    register(parameters)  # this may be another process than the one in which it was resolved
    named_authors(target)
    env = as_written(target, render_mode=render_mode)
    frame = frame_format(target.id, env.observation_space)
    env = Received(env, frame, target.id, index)
    stacked = frame.is_image and parameters.frame_stack > 1 and parameters.backend != "EnvPool"  # it stacks by itself
    env = FrameStackObservation(env, parameters.frame_stack, padding_type="zero") if stacked else wrappers.OneFrame(env)
    return wrappers.ActionSubset(env, parameters.actions, target.id) if parameters.actions else env


def as_written(target: RegisteredEnvironment | UserFactory, *, render_mode: str | None = None) -> Env:
    """The environment as its author gives it, with the spaces that every one has. Raises EnvironmentProblem."""
    draws: dict[str, Any] = {"render_mode": render_mode} if render_mode else {}  # many take no render_mode at all
    env = _registered(target, draws) if isinstance(target, RegisteredEnvironment) else _from_factory(target, draws)
    for space in ("observation_space", "action_space"):
        if not isinstance(found := getattr(env, space, None), gymnasium.Space):
            raise EnvironmentProblem(
                f"environment {short(target.id)!r}: its attribute {space} has to be a gymnasium.spaces object, but is "
                f"{shown(found)}"
            )
    return env


def _atari(game: AtariGame, parameters: EnvironmentParameters, render_mode: str | None) -> Env:
    try:
        env: Env = gymnasium.make(
            game.id,
            render_mode=render_mode,
            disable_env_checker=True,
            frameskip=1,
            repeat_action_probability=parameters.atari.sticky_action_probability,
            full_action_space=parameters.atari.full_action_space,
            max_num_frames_per_episode=parameters.max_episode_raw_frames,
            obs_type="grayscale",
            **game.kwargs,
        )
    except PLUGIN_FAILURES as error:
        raise _cannot_make(game.id, error) from error
    if parameters.atari.fire_reset:
        env = wrappers.FireReset(env)
    preprocessing = wrappers.DirectSteps if parameters.atari.max_pool else wrappers.NewestFrameOnly
    env = preprocessing(
        env,
        noop_max=parameters.atari.noop_max,
        frame_skip=parameters.atari.frame_skip,
        screen_size=parameters.atari.frame_size,
        terminal_on_life_loss=False,
    )
    if parameters.actions:
        env = wrappers.ActionSubset(env, parameters.actions, game.id)
    # ALE starts an episode with zero frames, and so must this for the two to agree.
    return FrameStackObservation(env, parameters.frame_stack, padding_type="zero")


def _registered(target: RegisteredEnvironment, draws: dict[str, Any]) -> Env:
    try:
        return gymnasium.make(target.made_as, disable_env_checker=True, **{**target.kwargs, **draws})
    except PLUGIN_FAILURES as error:
        raise _cannot_make(target.id, error) from error


def _from_factory(target: UserFactory, draws: dict[str, Any]) -> Env:
    if target.vector_only:
        raise EnvironmentProblem(
            f"environment {short(target.id)!r} cannot be made one by one: its factory requires num_envs; give num_envs a "
            "default with which it returns a plain gymnasium.Env, which scoring and video need"
        )
    try:
        env = target.make(**{**target.kwargs, **(draws if target.draws else {})})
    except PLUGIN_FAILURES as error:
        raise _cannot_make(target.id, error) from error
    if not isinstance(env, gymnasium.Env):
        raise EnvironmentProblem(
            f"environment {short(target.id)!r}: the factory returned {_returned(env)}; it must return a gymnasium.Env"
        )
    return env


def _returned(came: object) -> str:
    return f"the class {came.__name__}, not an object of it" if isinstance(came, type) else shown(came)


def _cannot_make(environment_id: str, error: BaseException) -> EnvironmentProblem:
    return EnvironmentProblem(f"environment {short(environment_id)!r} cannot be made: {what_it_lacks(error)}")

"""Making environments from a manifest: the functions that other rooms call.

Which backend ``Auto`` means, in this order:

1. Atari without extra kwargs: Native (ALE's vector environment, which cannot set a game's ``mode`` and ``difficulty``).
2. A factory that takes ``num_envs``, or a Gymnasium id with a vector class that can follow the SAME_STEP rule: Native.
3. More than two environments, more than one core, and steps that take longer than the exchange with a process, tried with
   one copy: Async.
4. Everything else: Sync.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rljob.cores import usable_cores
from rljob.envs import single, wrappers
from rljob.envs.atari import NativeAtari
from rljob.envs.base import EnvironmentProblem, VectorEnvironment
from rljob.envs.gymnasium_vector import GymnasiumVector
from rljob.envs.processes import ProcessVector
from rljob.envs.received import close
from rljob.envs.restarting import RestartingEnv, RestartingVector, RestartLimit
from rljob.envs.spaces import FrameFormat, checked_subset, frame_format, num_actions
from rljob.envs.spec import EnvironmentSpec, fingerprint
from rljob.envs.target import (
    AtariGame,
    RegisteredEnvironment,
    Target,
    UserFactory,
    clips_rewards,
    resolve,
)
from rljob.envs.user_vector import user_vector
from rljob.loading import PLUGIN_FAILURES, short, told

if TYPE_CHECKING:
    from rljob.api import EnvironmentParameters


_EXCHANGE_SECONDS: Final = 0.3e-3
"""What a process of its own adds to a step: two context switches and an observation through shared memory."""
_TRIED_STEPS: Final = 31


def describe_environment(environment_id: str, parameters: EnvironmentParameters) -> EnvironmentSpec:
    """Shapes, actions and fingerprint of an environment; builds one copy to inspect. Raises EnvironmentProblem."""
    return _describe(resolve(environment_id, parameters), parameters)


def describe_rewards(environment_id: str, parameters: EnvironmentParameters) -> str:
    """Which rewards training sees, and why, for a report."""
    clipped = clips_rewards(environment_id, parameters)
    seen = "clipped to [-1, 1]" if clipped else "as the environment gives them"
    return f"{seen} (rewardClipping: {parameters.reward_clipping})"


def make_single_environment(
    environment_id: str,
    parameters: EnvironmentParameters,
    *,
    for_scoring: bool,
    render_mode: str | None = None,
    restarting: bool = False,
) -> gymnasium.Env[Any, Any]:
    """One plain Gymnasium environment with observations [S, *F*], made of Gymnasium's own wrappers.

    ``for_scoring``: rewards are the game's own; otherwise they are clipped if the parameters say so. Lives never end an
    episode in either. ``restarting``: made anew when it fails, as ``RestartingEnv`` tells. Raises EnvironmentProblem.
    """
    target = resolve(environment_id, parameters)
    make = functools.partial(single.build, target, parameters, render_mode=render_mode)
    env = RestartingEnv(make) if restarting else make()
    return env if for_scoring or not clips_rewards(target.id, parameters) else wrappers.ClippedReward(env)


def make_restarting_environment(
    spec: EnvironmentSpec,
    parameters: EnvironmentParameters,
    num_envs: int,
    seed: int,
    limit: RestartLimit,
    threads: int = 1,
) -> VectorEnvironment:
    """As ``make_vector_environment``, of the environment that was described as ``spec``; what fails while it is stepped is made
    anew, as far as ``limit`` allows."""

    def make(seed: int) -> VectorEnvironment:
        return make_vector_environment(spec.id, parameters, num_envs, seed, threads=threads, restarting=True, spec=spec)

    return RestartingVector(make, seed, limit)


def make_vector_environment(
    environment_id: str,
    parameters: EnvironmentParameters,
    num_envs: int,
    seed: int,
    *,
    threads: int = 1,
    restarting: bool = False,
    spec: EnvironmentSpec | None = None,
) -> VectorEnvironment:
    """``num_envs`` copies behind the backend that the parameters choose (Auto: see above). Raises EnvironmentProblem.

    ``threads``: how many ALE's vector environment steps its games with; what happens in them is the same with any number.
    ``restarting``: environments that are stepped one by one are made anew when they fail (``StepResult.cut``).
    ``spec``: what it was described as; else one more copy is made to look at.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    target = resolve(environment_id, parameters)
    spec = spec or _describe(target, parameters)
    if parameters.backend in ("Auto", "Native") and (reason := _why_not_native(target, spec, parameters)):
        if parameters.backend == "Native":
            raise EnvironmentProblem(
                f"environment {short(environment_id)!r} has no Native backend: {reason}; set backend: Auto"
            )
    elif parameters.backend in ("Auto", "Native", "EnvPool"):
        try:
            return _native(target, spec, parameters, num_envs, seed, threads)
        except EnvironmentProblem:
            must_be_native = isinstance(target, UserFactory) and target.vector_only
            if parameters.backend != "Auto" or must_be_native or isinstance(target, AtariGame):
                raise
    # An emulator does not raise; its worker process may die, which ends the whole vector.
    makers = _makers(target, parameters, num_envs, restarting=restarting and not isinstance(target, AtariGame))
    if parameters.backend == "Async" or (parameters.backend == "Auto" and _worth_processes(makers, spec.num_actions)):
        return _wrapped(ProcessVector(target.id, makers, seed), target, spec, parameters, seed)
    sync: VectorEnv[Any, Any, Any] = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    return _wrapped(sync, target, spec, parameters, seed)


def _describe(target: Target, parameters: EnvironmentParameters) -> EnvironmentSpec:
    if isinstance(target, UserFactory) and target.vector_only:
        vector = user_vector(target, 1)
        frame, stack = frame_format(target.id, vector.single_observation_space), 1
        actions = num_actions(target.id, vector.single_action_space)
        close(vector, target.id)
        if parameters.actions:
            actions = len(checked_subset(target.id, parameters.actions, actions))
    else:
        env = single.build(target, parameters)
        stacked = frame_format(target.id, env.observation_space)
        frame, stack = FrameFormat(stacked.shape[1:], stacked.dtype), stacked.shape[0]
        actions = num_actions(target.id, env.action_space)
        env.close()
    return EnvironmentSpec(
        id=target.id,
        frame_shape=frame.shape,
        frame_dtype=frame.dtype,
        stack=stack,
        num_actions=actions,
        raw_frames_per_step=parameters.atari.frame_skip if isinstance(target, AtariGame) else 1,
        fingerprint=fingerprint(target.id, parameters, reward_clipping=clips_rewards(target.id, parameters)),
    )


def _why_not_native(target: Target, spec: EnvironmentSpec, parameters: EnvironmentParameters) -> str | None:
    if isinstance(target, AtariGame):
        return "kwargs (mode, difficulty) cannot be passed to ALE's vector environment" if target.kwargs else None
    if isinstance(target, RegisteredEnvironment) and not target.has_vector_class:
        return "it registers no vector_entry_point"
    if isinstance(target, UserFactory) and not target.vectorised:
        return "its factory takes no num_envs"
    if isinstance(target, UserFactory) and target.on_device:
        return "its factory takes a device: its arrays stay there, where only actors with inference: Local use them"
    return "frames of a vector class are not stacked, and frameStack is above 1" if spec.stack > 1 else None


def _native(
    target: Target, spec: EnvironmentSpec, parameters: EnvironmentParameters, num_envs: int, seed: int, threads: int
) -> VectorEnvironment:
    if isinstance(target, AtariGame):
        return NativeAtari(
            spec,
            target.rom,
            num_envs,
            seed,
            actions=parameters.actions or tuple(range(spec.num_actions)),
            frame_skip=parameters.atari.frame_skip,
            max_pool=parameters.atari.max_pool,
            noop_max=parameters.atari.noop_max,
            fire_reset=parameters.atari.fire_reset,
            sticky_action_probability=parameters.atari.sticky_action_probability,
            full_action_space=parameters.atari.full_action_space,
            max_episode_raw_frames=parameters.max_episode_raw_frames,
            reward_clipping=clips_rewards(target.id, parameters),
            threads=threads,
        )
    if isinstance(target, UserFactory):
        vector = user_vector(target, num_envs)
    else:
        try:
            vector = gymnasium.make_vec(
                target.made_as, num_envs, vectorization_mode="vector_entry_point", **target.kwargs
            )
        except PLUGIN_FAILURES as error:
            raise EnvironmentProblem(
                f"environment {short(target.id)!r}: its vector class cannot be made: {told(error)}"
            ) from error
    return GymnasiumVector(
        spec,
        vector,
        seed,
        stacked=False,
        reward_clipping=clips_rewards(target.id, parameters),
        actions=parameters.actions,
    )


def _worth_processes(makers: Sequence[Callable[[], gymnasium.Env[Any, Any]]], num_actions: int) -> bool:
    """Whether copies in processes of their own are faster than copies in this one."""
    if len(makers) <= 2 or usable_cores() < 2:
        return False
    env = makers[0]()
    try:
        env.reset()  # without a seed: one would be that of this process's generators, and the same in every actor
        took = sorted(_step_seconds(env, step % num_actions) for step in range(_TRIED_STEPS))
    finally:
        env.close()
    return took[_TRIED_STEPS // 2] > _EXCHANGE_SECONDS


def _step_seconds(env: gymnasium.Env[Any, Any], action: int) -> float:
    began = time.perf_counter()
    _, _, terminated, truncated, _ = env.step(np.int64(action))
    seconds = time.perf_counter() - began
    if terminated or truncated:
        env.reset()
    return seconds


def _makers(target: Target, parameters: EnvironmentParameters, num_envs: int, *, restarting: bool) -> list[Any]:
    each = [functools.partial(single.build, target, parameters, index) for index in range(num_envs)]
    return [functools.partial(RestartingEnv, make) for make in each] if restarting else each


def _wrapped(
    vector: VectorEnv[Any, Any, Any],
    target: Target,
    spec: EnvironmentSpec,
    parameters: EnvironmentParameters,
    seed: int,
) -> GymnasiumVector:
    return GymnasiumVector(
        spec,
        vector,
        seed,
        stacked=True,
        reward_clipping=clips_rewards(target.id, parameters),
        atari=isinstance(target, AtariGame),
    )

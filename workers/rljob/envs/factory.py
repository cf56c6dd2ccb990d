"""Making environments from a manifest: the functions that other rooms call.

Which backend ``Auto`` means, in this order:

1. Atari without extra kwargs: Native (ALE's vector environment, which cannot set a game's ``mode`` and ``difficulty``).
2. A factory that takes ``num_envs``, or a Gymnasium id with a vector class that can follow the SAME_STEP rule: Native.
3. More than two environments, more than one core, and steps that take longer than the exchange with a process, tried with
   one copy: Async.
4. Everything else: Sync.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import ClipReward

from rljob.api import EnvironmentParameters
from rljob.api.environment import EnvironmentSource
from rljob.envs import single
from rljob.envs.atari import NativeAtari
from rljob.envs.base import EnvironmentProblem, VectorEnvironment
from rljob.envs.encoding import Encoding, any_action
from rljob.envs.gymnasium_vector import GymnasiumVector, user_vector
from rljob.envs.processes import ProcessVector
from rljob.envs.received import close
from rljob.envs.restarting import RestartingEnv, RestartingVector, RestartLimit
from rljob.envs.spec import EnvironmentSpec
from rljob.envs.target import (
    AtariGame,
    RegisteredEnvironment,
    Target,
    UserFactory,
    clips_rewards,
    named_authors,
    resolve,
)
from rljob.loading import PLUGIN_FAILURES, contained, short, told
from rljob.threads import usable_cores

_EXCHANGE_SECONDS: Final = 0.3e-3
"""What a process of its own adds to a step: two context switches and an observation through shared memory."""
_TRIED_STEPS: Final = 31
_LEAST_TRIED_STEPS: Final = 3
_TRIED_SECONDS: Final = 1.0
"""A simulator that takes so long is slow; another 31 of its steps would say no more."""


def describe_environment(environment_id: str, parameters: EnvironmentParameters) -> EnvironmentSpec:
    """Shapes, actions and fingerprint of an environment; builds one copy to inspect. Raises EnvironmentProblem."""
    spec = _describe(resolve(environment_id, parameters), parameters)
    if parameters.encoder is None:
        return spec
    from rljob.envs.latents import encoded  # it needs safetensors, which nothing else of an environment does

    return encoded(spec, parameters.encoder.file)


def describe_both(training: EnvironmentSource, judged: EnvironmentSource) -> EnvironmentSpec:
    """What ``training`` is. Raises EnvironmentProblem, also where ``judged`` is not the same to a network."""
    spec = describe_environment(training.id, training.parameters)
    other = spec if judged == training else describe_environment(judged.id, judged.parameters)
    if (differs := spec.difference(other)) is not None:
        raise EnvironmentProblem(
            f"environment {short(judged.id)!r} of spec.evaluator.environment has to show and take what {short(training.id)!r} "
            f"does, but there is {differs}"
        )
    return spec


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
    spec: EnvironmentSpec | None = None,
    **rest: bool,
) -> gymnasium.Env[Any, Any]:
    """One plain Gymnasium environment with observations [S, *F*], made of Gymnasium's own wrappers.

    ``for_scoring``: rewards are the game's own; otherwise they are clipped if the parameters say so. Lives never end an
    episode in either. ``restarting``: made anew when it fails, as ``RestartingEnv`` tells. ``spec``: what it was described as;
    else it is looked at. ``rest``: as ``single.build`` says. Raises EnvironmentProblem.
    """
    target = resolve(environment_id, parameters)
    make = functools.partial(single.build, target, parameters, 0, spec, render_mode=render_mode, **rest)
    env = RestartingEnv(make) if restarting else make()
    return env if for_scoring or not clips_rewards(target.id, parameters) else ClipReward(env, -1.0, 1.0)


def make_restarting_environment(
    spec: EnvironmentSpec,
    parameters: EnvironmentParameters,
    num_envs: int,
    seed: int,
    limit: RestartLimit,
    threads: int = 1,
    alive: Callable[[], None] = lambda: None,
) -> VectorEnvironment:
    """As ``make_vector_environment``, of the environment that was described as ``spec``; what fails while it is stepped is made
    anew, as far as ``limit`` allows. ``alive`` is called between environments that are stepped one after the other."""

    def make(seed: int) -> VectorEnvironment:
        return make_vector_environment(
            spec.id, parameters, num_envs, seed, threads=threads, restarting=True, spec=spec, alive=alive
        )

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
    alive: Callable[[], None] = lambda: None,
) -> VectorEnvironment:
    """``num_envs`` copies behind the backend that the parameters choose (Auto: see above). Raises EnvironmentProblem.

    ``threads``: how many ALE's vector environment steps its games with; what happens in them is the same with any number.
    ``restarting``: environments that are stepped one by one are made anew when they fail (``StepResult.cut``).
    ``spec``: what it was described as; else one more copy is made to look at. ``alive``: as above, of ``restarting`` ones.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    target = resolve(environment_id, parameters)
    spec = spec or _describe(target, parameters)
    own_vector = parameters.backend in ("Auto", "Native", "EnvPool")
    if own_vector and (reason := _why_not_native(target, spec, parameters)):
        if parameters.backend != "Auto":
            raise EnvironmentProblem(
                f"environment {short(environment_id)!r} has no {parameters.backend} backend: {reason}; set backend: Auto"
            )
    elif own_vector:
        try:
            return _native(target, spec, parameters, num_envs, seed, threads)
        except EnvironmentProblem:
            must_be_native = isinstance(target, UserFactory) and target.vector_only
            if parameters.backend != "Auto" or must_be_native or isinstance(target, AtariGame):
                raise
    # An emulator does not raise; its worker process may die, which ends the whole vector.
    restarts = restarting and not isinstance(target, AtariGame)
    makers: list[Any] = [functools.partial(single.build, target, parameters, index, spec) for index in range(num_envs)]
    if restarts:
        makers = [functools.partial(RestartingEnv, make) for make in makers]
    vector: VectorEnv[Any, Any, Any]
    if parameters.backend == "Async" or (parameters.backend == "Auto" and _worth_processes(makers, spec)):
        vector = ProcessVector(target.id, makers, seed)
    else:
        in_turn = [functools.partial(make, alive) if restarts else make for make in makers]
        vector = SyncVectorEnv(in_turn, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    return GymnasiumVector(
        spec,
        vector,
        seed,
        encoding=None,
        reward_clipping=clips_rewards(target.id, parameters),
        atari=isinstance(target, AtariGame),
    )


def _describe(target: Target, parameters: EnvironmentParameters) -> EnvironmentSpec:
    if isinstance(target, UserFactory) and target.vector_only:
        env: Any = user_vector(target, 1)
    elif isinstance(target, AtariGame):
        return single.described_game(target, parameters)
    else:
        named_authors(target)
        env = single.as_written(target)
    try:
        return single.described(target, env, parameters)
    finally:
        close(env, target.id)


def _why_not_native(target: Target, spec: EnvironmentSpec, parameters: EnvironmentParameters) -> str | None:
    if isinstance(target, AtariGame):
        return "kwargs (mode, difficulty) cannot be passed to ALE's vector environment" if target.kwargs else None
    factory = target if isinstance(target, UserFactory) else None
    registered = target if isinstance(target, RegisteredEnvironment) else None
    reasons = (
        (registered and not registered.has_vector_class, "it registers no vector_entry_point"),
        (factory and not factory.vectorised, "its factory takes no num_envs"),
        (
            factory and factory.on_device,
            "its factory takes a device: its arrays stay there, where only actors with inference: Local use them",
        ),
        (
            spec.masked_by_info,
            "masks of infos are not read from a vector class (actionMasks: Ignored does without them)",
        ),
        (parameters.max_episode_steps, "a vector class ends its episodes itself, not after maxEpisodeSteps"),
        (spec.stack > 1, "frames of a vector class are not stacked, and frameStack is above 1"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def _native(
    target: Target, spec: EnvironmentSpec, parameters: EnvironmentParameters, num_envs: int, seed: int, threads: int
) -> VectorEnvironment:
    if isinstance(target, AtariGame):
        return NativeAtari(
            spec,
            target.rom,
            num_envs,
            seed,
            actions=parameters.action_subset or tuple(range(spec.num_actions)),
            frame_skip=parameters.atari.frame_skip,
            max_pool=parameters.atari.max_pool,
            noop_max=parameters.atari.noop_max,
            fire_reset=parameters.atari.fire_reset,
            sticky_action_probability=parameters.atari.sticky_action_probability,
            full_action_space=parameters.atari.full_action_space,
            max_episode_raw_frames=parameters.most_raw_frames,
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
        encoding=Encoding(spec, parameters),
        reward_clipping=clips_rewards(target.id, parameters),
    )


@contained(making=True)
def _worth_processes(makers: Sequence[Callable[[], gymnasium.Env[Any, Any]]], spec: EnvironmentSpec) -> bool:
    """Whether copies in processes of their own are faster than copies in this one."""
    if len(makers) <= 2 or usable_cores() < 2:
        return False
    env = makers[0]()
    try:
        took = sorted(_step_seconds(env, spec))
    finally:
        env.close()
    return took[len(took) // 2] > _EXCHANGE_SECONDS


def _step_seconds(env: gymnasium.Env[Any, Any], spec: EnvironmentSpec) -> Iterator[float]:
    """What its steps take: 31 of them, or as many as fit into a second, three at least."""
    generator = np.random.default_rng(0)
    observation, _ = (
        env.reset()
    )  # without a seed: one would be that of this process's generators, the same in every actor
    enough = time.perf_counter() + _TRIED_SECONDS
    for step in range(_TRIED_STEPS):
        if step >= _LEAST_TRIED_STEPS and time.perf_counter() > enough:
            return
        action = any_action(spec, observation, generator)
        began = time.perf_counter()
        observation, _, terminated, truncated, _ = env.step(action)
        yield time.perf_counter() - began
        if terminated or truncated:
            observation, _ = env.reset()

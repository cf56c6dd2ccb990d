"""One plain environment, built from Gymnasium's own parts and a few wrappers that it does not have: for scoring, for video, and
for Sync and Async backends."""

import contextlib
import functools
import socket
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TimeLimit, TransformAction

from rljob.api import EnvironmentParameters
from rljob.envs.base import EnvironmentProblem
from rljob.envs.encoding import Encoding
from rljob.envs.envpool_vector import is_game_of_atari
from rljob.envs.received import Received
from rljob.envs.spaces import MASK, action_leaves, check_squashed, checked_subset, observation_leaves
from rljob.envs.spec import ActionLeaf, EnvironmentSpec, Leaf, fingerprint
from rljob.envs.target import (
    AtariGame,
    RegisteredEnvironment,
    Target,
    UserFactory,
    clips_rewards,
    named_authors,
    register,
    what_it_lacks,
)
from rljob.loading import PLUGIN_FAILURES, contained, short, shown
from rljob.observation import Columns, arrays_of, each, of_columns, zeros

Env = gymnasium.Env[Any, Any]
_MOST_COPIES: Final = 10_000


def build(
    target: Target,
    parameters: EnvironmentParameters,
    index: int = 0,
    spec: EnvironmentSpec | None = None,
    *,
    render_mode: str | None = None,
    own_actions: bool = False,
    keeps_infos: bool = False,
) -> Env:
    """Copy ``index`` of the environment that ``target`` names, with observations [S, *F*] and the game's own rewards.

    ``spec``: what it was described as; else it is looked at. ``own_actions``: it takes actions of its author's space in place of
    a policy's numbers; a game of Atari has no such. ``keeps_infos``: its infos are handed on, as those of a game always are.
    Raises EnvironmentProblem when it cannot be made or has spaces that are not supported.
    """
    if isinstance(target, AtariGame):
        return _atari(target, parameters, render_mode)
    register(parameters)  # this may be another process than the one in which it was resolved
    named_authors(target)
    env = as_written(target, render_mode=render_mode)
    spec = spec or described(target, env, parameters)
    # Below what takes infos over, so that an end by time has the numbers that the environment reports, too.
    limited = TimeLimit(env, parameters.max_episode_steps) if parameters.max_episode_steps else env
    env = Received(
        limited, Encoding(spec, parameters), target.id, index, own_actions=own_actions, keeps_infos=keeps_infos
    )
    return Stacked(env, spec.columns)


@contained(making=True)
def described(target: Target, env: Any, parameters: EnvironmentParameters) -> EnvironmentSpec:
    """What ``env`` is, as ``as_written`` gives it, or a vector environment; one that is no vector is reset, and stepped once, to
    see whether its infos have masks."""
    vector = isinstance(env, gymnasium.vector.VectorEnv)
    actions = action_leaves(target.id, env.single_action_space if vector else env.action_space)
    if parameters.action_subset:
        subset = checked_subset(target.id, parameters.action_subset, actions)
        actions = (replace(actions[0], sizes=(len(subset),)),)
    if parameters.squashes:
        check_squashed(target.id, actions)
    space = env.single_observation_space if vector else env.observation_space
    choices = sum(size for leaf in actions for size in leaf.sizes)
    ignored = vector or not choices or parameters.action_masks == "Ignored"
    masked = not ignored and _gives_masks(env)
    leaves = observation_leaves(target.id, space, parameters.leaves, choices, masked_by_info=masked)
    return _spec(target, parameters, leaves, actions, masked_by_info=leaves[-1].keys == ("info", MASK) and masked)


def described_game(game: AtariGame, parameters: EnvironmentParameters) -> EnvironmentSpec:
    """What a game of Atari is."""
    env = _atari(game, parameters, None)
    count = int(env.action_space.n)  # type: ignore[attr-defined]
    env.close()
    side = parameters.atari.frame_size
    screen = Leaf((), "image", (side, side), "uint8", 1.0 / 255.0, column="frames")
    buttons = (ActionLeaf((), "Discrete", (), "int64", (count,), (0,)),)
    if parameters.squashes:
        check_squashed(game.id, buttons)
    return _spec(game, parameters, (screen,), buttons)


def _spec(
    target: Target,
    parameters: EnvironmentParameters,
    leaves: tuple[Leaf, ...],
    actions: tuple[ActionLeaf, ...],
    *,
    masked_by_info: bool = False,
) -> EnvironmentSpec:
    clipped = clips_rewards(target.id, parameters)
    # EnvPool stacks by itself.
    pooled = parameters.backend == "EnvPool"
    stacked = any(leaf.role == "image" for leaf in leaves) and not pooled
    of_pool = target.kwargs.get("frame_skip", 4) if pooled and is_game_of_atari(target.id) else 1
    return EnvironmentSpec(
        id=target.id,
        observation=leaves,
        action=actions,
        stack=parameters.frame_stack if stacked else 1,
        raw_frames_per_step=parameters.atari.frame_skip if isinstance(target, AtariGame) else of_pool,
        fingerprint=fingerprint(target.id, parameters, (*leaves, *actions), reward_clipping=clipped),
        masked_by_info=masked_by_info,
    )


def _gives_masks(env: Env) -> bool:
    """Whether infos of ``env`` say which actions are allowed. One that fails once is asked again; where it goes on to fail, the
    trial says so, and where."""
    for _ in range(2):
        with contextlib.suppress(*PLUGIN_FAILURES):
            _, info = env.reset()
            return MASK in info or MASK in env.step(env.action_space.sample())[4]
    return False


@contained(making=True)
def as_written(target: RegisteredEnvironment | UserFactory, *, render_mode: str | None = None) -> Env:
    """The environment as its author gives it, with the spaces that every one has. Raises EnvironmentProblem."""
    if isinstance(target, UserFactory) and target.vector_only:
        raise EnvironmentProblem(
            f"environment {short(target.id)!r} cannot be made one by one: its factory requires num_envs; give num_envs a "
            "default with which it returns a plain gymnasium.Env, which scoring and video need"
        )
    draws: dict[str, Any] = {"render_mode": render_mode} if render_mode else {}  # many take no render_mode at all
    try:
        env = _made(target, draws)
    except PLUGIN_FAILURES as error:
        raise _cannot_make(target.id, error) from error
    if not isinstance(env, gymnasium.Env):
        came = f"the class {env.__name__}, not an object of it" if isinstance(env, type) else shown(env)
        raise EnvironmentProblem(
            f"environment {short(target.id)!r}: the factory returned {came}; it must return a gymnasium.Env"
        )
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
            max_num_frames_per_episode=parameters.most_raw_frames,
            obs_type="grayscale",
            **game.kwargs,
        )
    except PLUGIN_FAILURES as error:
        raise _cannot_make(game.id, error) from error
    if parameters.atari.fire_reset:
        env = FireReset(env)
    preprocessing = DirectSteps if parameters.atari.max_pool else NewestFrameOnly
    env = preprocessing(
        env,
        noop_max=parameters.atari.noop_max,
        frame_skip=parameters.atari.frame_skip,
        screen_size=parameters.atari.frame_size,
        terminal_on_life_loss=False,
    )
    if parameters.action_subset:
        count = int(env.action_space.n)  # type: ignore[attr-defined]
        own = ActionLeaf((), "Discrete", (), "int64", (count,), (0,))
        some = checked_subset(game.id, parameters.action_subset, (own,))
        env = TransformAction(env, lambda action: some[int(action)], gymnasium.spaces.Discrete(len(some)))
    # ALE starts an episode with zero frames, and so must this for the two to agree.
    return FrameStackObservation(env, parameters.frame_stack, padding_type="zero")


def _made(target: RegisteredEnvironment | UserFactory, draws: dict[str, Any]) -> Any:
    if isinstance(target, RegisteredEnvironment):
        return gymnasium.make(target.made_as, disable_env_checker=True, **{**target.kwargs, **draws})
    make = functools.partial(target.make, **{**target.kwargs, **(draws if target.draws else {})})
    return _numbered(make) if target.numbered else make()


def _numbered(make: Callable[..., Env]) -> Env:
    """A copy of the lowest number that no other copy on this machine has; a socket's name, which can be had once, tells."""
    for number in range(_MOST_COPIES):
        held = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            held.bind(f"\0rljob-copy-{number}")
            break
    env = make(copy_number=number)
    weakref.finalize(env, held.close)
    return env


def _cannot_make(environment_id: str, error: BaseException) -> EnvironmentProblem:
    return EnvironmentProblem(f"environment {short(environment_id)!r} cannot be made: {what_it_lacks(error)}")


class FireReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Press FIRE for one raw frame at each start, where the game has that button; goes below AtariPreprocessing."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        meanings = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        if self._fire is None:
            return observation, info
        observation, _, _, _, info = self.env.step(self._fire)
        return observation, info


class DirectSteps(AtariPreprocessing):
    """AtariPreprocessing that gives its raw frames to the emulator itself, past the environment below, which would copy the
    screen and fill an info for each: a fifth of a step's time. The steps are the same to the last bit, by test."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        ale = self.ale
        code = self.env.unwrapped._action_set[action]  # type: ignore[attr-defined]
        reward = 0.0
        for frame in range(self.frame_skip):
            reward += ale.act(code)
            if ale.game_over():
                break
            if frame >= self.frame_skip - 2:
                ale.getScreenGrayscale(self.obs_buffer[self.frame_skip - 1 - frame])
        self.game_over = terminated = ale.game_over(with_truncation=False)
        info = {
            "lives": ale.lives(),
            "episode_frame_number": ale.getEpisodeFrameNumber(),
            "frame_number": ale.getFrameNumber(),
        }
        return self._get_obs(), reward, terminated, ale.game_truncated(), info  # type: ignore[no-untyped-call]


class NewestFrameOnly(DirectSteps):
    """The same without the maximum over the last two raw frames."""

    def _get_obs(self) -> Any:
        self.obs_buffer[1].fill(0)
        return super()._get_obs()  # type: ignore[no-untyped-call]


class Stacked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Observations of ``columns`` with the newest rows of each: [*F*] become [S, *F*], zeros before the first of an episode."""

    def __init__(self, env: Env, columns: Columns) -> None:
        super().__init__(env)
        self._columns = columns
        boxes = []
        for column, box in zip(columns, arrays_of(env.observation_space), strict=True):
            shape = column.observed
            low, high = (np.broadcast_to(bound, shape) for bound in (box.low, box.high))
            boxes.append(gymnasium.spaces.Box(low, high, dtype=box.dtype.type))
        found = of_columns(columns, boxes)
        self.observation_space = gymnasium.spaces.Dict(found) if isinstance(found, dict) else found

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._stacks = zeros(self._columns)
        return self._pushed(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self.env.step(action)
        return self._pushed(observation), *rest

    def _pushed(self, observation: Any) -> Any:
        self._stacks = each(_pushed, self._stacks, observation)
        return self._stacks


def _pushed(stack: Any, newest: Any) -> Any:
    return newest[None] if len(stack) == 1 else np.concatenate([stack[1:], newest[None]])

"""Small Gymnasium wrappers that Gymnasium itself does not have."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing

from rljob.observation import Columns, arrays_of, each, of_columns, zeros

Env = gymnasium.Env[Any, Any]


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


class AtariActions(gymnasium.ActionWrapper[Any, Any, Any]):
    """Offer only some of a game's actions: action i of ours is ``actions[i]`` of the wrapped environment."""

    def __init__(self, env: Env, actions: Sequence[int]) -> None:
        super().__init__(env)
        self._actions = actions
        self.action_space = gymnasium.spaces.Discrete(len(actions))

    def action(self, action: Any) -> int:
        return self._actions[int(action)]


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


class ClippedReward(gymnasium.RewardWrapper[Any, Any]):
    """Rewards clipped to [-1, 1]."""

    def reward(self, reward: Any) -> float:
        return float(np.clip(reward, -1.0, 1.0))

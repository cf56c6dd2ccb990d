"""Atari on ALE's own vector environment: N games in one process, stepped by one thread, preprocessed in C++.

Differences from the Gymnasium stack (AtariPreprocessing + FrameStackObservation); the rest is bit-equal, by test:

- the number of no-operation frames at a start is 0 .. max(noop_max, 1) - 1 here and 1 .. noop_max there, drawn from
  different generators;
- sticky actions are drawn from generators that are seeded differently;
- the time limit here does not count the frames of the start (no-operation and FIRE).

ALE's ``episodic_life`` would reset the whole game at every life, and ``life_loss_info`` would call a lost life an end;
both stay off, and lost lives are read from the life counter. Its reward clipping stays off so that scores are counted.
"""

from collections.abc import Sequence

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rljob.envs.base import Observation, StepResult
from rljob.envs.meter import AtariCounters, EpisodeMeter
from rljob.envs.spaces import checked_actions
from rljob.envs.spec import EnvironmentSpec


class NativeAtari:
    """N copies of one game. ``actions``: for each of our actions, its index in ALE's action set."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        rom: str,
        num_envs: int,
        seed: int,
        *,
        actions: Sequence[int],
        frame_skip: int,
        max_pool: bool,
        noop_max: int,
        fire_reset: bool,
        sticky_action_probability: float,
        full_action_space: bool,
        max_episode_raw_frames: int,
        reward_clipping: bool,
        threads: int = 1,
    ) -> None:
        self.spec, self.num_envs = spec, num_envs
        self._seed: int | None = seed
        self._actions: NDArray[np.int64] = np.asarray(actions, np.int64)
        self._limit_raw_frames, self._reward_clipping = max_episode_raw_frames, reward_clipping
        self._meter, self._counters = EpisodeMeter(num_envs), AtariCounters()
        self._env: AtariVectorEnv | None = AtariVectorEnv(
            rom,
            num_envs,
            num_threads=min(threads, num_envs),
            max_num_frames_per_episode=max_episode_raw_frames,
            repeat_action_probability=sticky_action_probability,
            full_action_space=full_action_space,
            autoreset_mode=AutoresetMode.SAME_STEP,
            img_height=spec.columns[0].shape[0],
            img_width=spec.columns[0].shape[1],
            grayscale=True,
            stack_num=spec.stack,
            frameskip=frame_skip,
            maxpool=max_pool,
            noop_max=noop_max,
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
            use_fire_reset=fire_reset,
        )

    def reset(self, seed: int | None = None) -> Observation:
        seed, self._seed = (self._seed if seed is None else seed), None
        observation: Observation
        observation, info = self._running().reset(seed=seed)
        self._meter.begin(self._counters.begin(info))
        return observation

    def step(self, actions: NDArray[np.int64], controls: NDArray[np.float32] | None = None) -> StepResult:
        checked_actions(actions, self.num_envs, (len(self._actions),))
        observation, reward, terminated, truncated, info = self._running().step(self._actions[actions])
        # ALE reports either flag; that it is time, and not the game, is decided by the frames we count ourselves.
        ended = terminated | truncated
        frames = self._counters.step(info, ended)
        truncated = ended & ~terminated & (frames.played >= self._limit_raw_frames)
        terminated = ended & ~truncated
        episodes = self._meter.step(reward, frames.of_step, terminated, truncated, frames.of_reset)
        return StepResult(
            observation=observation,
            reward=(np.sign(reward) if self._reward_clipping else reward).astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            life_lost=frames.life_lost,
            final_observation=info["final_obs"] if episodes else None,
            raw_frames=int(frames.of_step.sum() + frames.of_reset.sum()),
            episodes=episodes,
        )

    def close(self) -> None:
        # ALE has no close; the emulator's thread ends when the object is collected.
        self._env = None

    def _running(self) -> AtariVectorEnv:
        if self._env is None:
            raise RuntimeError(f"environment {self.spec.id!r} was closed")
        return self._env

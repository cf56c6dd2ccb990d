"""From vector steps to unrolls: N streams in step with each other, cut every T steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.experience.arguments import check_builder, check_first_observation
from rljob.experience.unroll import Unroll, UnrollLayout

Array = NDArray[Any]


class UnrollBuilder:
    """Records N environment streams and emits N unrolls every T steps, one step late: the value of the observation behind an
    unroll is known only when that observation is acted on, which is the first step of the next unroll.

    Buffers are preallocated; emitted unrolls own copies. Not thread-safe.
    """

    def __init__(
        self,
        layout: UnrollLayout,
        num_envs: int,
        gamma: float,
        life_loss_ends_episode: bool,
        actor: str,
        incarnation: str,
        epoch: int,
    ) -> None:
        check_builder(num_envs, gamma)
        self.layout = layout
        self.num_envs = num_envs
        self.epoch = epoch
        self.produced = 0
        self.cut_steps = 0
        self._actor, self._incarnation = actor, incarnation
        self._gamma = np.float32(gamma)
        self.life_loss_ends_episode = life_loss_ends_episode
        self._sequence = 0
        self._count = -1  # -1: begin() has not been called
        self._began_in_epoch = epoch
        steps = layout.length
        capacity = layout.max_frames
        self._frames: Array = np.zeros((num_envs, capacity, *layout.frame_shape), layout.frame_dtype)
        self._flat_frames = self._frames.reshape(num_envs * capacity, *layout.frame_shape)
        self._frame_base = np.arange(num_envs) * capacity
        self._used = np.zeros(num_envs, np.int64)
        self._position: Array = np.zeros((num_envs, steps + 1), np.uint16)
        self._action: Array = np.zeros((num_envs, steps), np.int32)
        self._reward: Array = np.zeros((num_envs, steps), np.float32)
        self._discount: Array = np.zeros((num_envs, steps), np.float32)
        self._log_prob: Array = np.zeros((num_envs, steps), np.float32)
        self._value: Array = np.zeros((num_envs, steps + 1), np.float32)
        self._final_value: Array = np.zeros((num_envs, steps), np.float32)
        self._versions: Array = np.zeros((num_envs, steps), np.int64)
        self._state: Array = np.zeros((num_envs, 2, layout.memory), np.float32)
        self._missing = np.zeros(num_envs, np.int64)  # rows of the current unroll that hold no step

    @property
    def pending(self) -> int:
        """Steps recorded and not yet emitted, over all streams; what leaving would lose."""
        return max(0, self._count) * self.num_envs - int(self._missing.sum())

    @property
    def steps_into_unroll(self) -> int:
        """Steps of each stream since the current unroll began."""
        return max(0, self._count) % self.layout.length

    def begin(self, observation: Array) -> int:
        """Start every stream at ``observation`` ``[N, S, *F*]``, the result of a reset. Returns how many steps were cut off."""
        layout = self.layout
        check_first_observation(observation, layout, self.num_envs)
        cut = self.pending
        self._frames[:, : layout.stack] = observation
        self._used[:] = layout.stack
        self._count = 0
        self._missing[:] = 0
        return cut

    def step(
        self,
        action: Array,
        reward: Array,
        terminated: Array,
        truncated: Array,
        life_lost: Array,
        observation: Array,
        taken: Array,
        value: Array,
        final_value: Array | None,
        policy_version: Array | int,
        state: Array | None = None,
        cut: Array | None = None,
    ) -> list[Unroll]:
        """Record one step of all N environments; returns the N unrolls that this step completes the values of, or none.

        ``taken`` f4[N] is log mu(a|s) and ``value`` f4[N] V(s) of the observation acted on, ``state`` f4[N, 2, H] the memory
        before it; ``final_value`` f4[N] is V of the final observations, read where truncated. NaN values (an actor without
        weights) are recorded as 0. In rows of ``cut`` b1[N] no step happened: their streams begin anew at ``observation``, and
        an unroll with such a row in it is not emitted (``cut_steps``). Other arguments as for ``ChunkBuilder``. The inputs are
        copied.
        """
        if self._count < 0:
            raise RuntimeError("unroll builder: step() before begin(); there is no observation that was acted on")
        value = np.nan_to_num(value, nan=0.0)
        unrolls = self._close(value) if self._count == self.layout.length else []
        t = self._count
        if t == 0:
            self._began_in_epoch = self.epoch
            if state is not None:
                self._state[:] = state
        ended = terminated | truncated
        stops = ended | life_lost if self.life_loss_ends_episode else ended
        self._position[:, t] = self._used - 1
        self._action[:, t] = action
        self._reward[:, t] = reward
        self._discount[:, t] = np.where(stops, np.float32(0.0), self._gamma)
        self._log_prob[:, t] = taken
        self._value[:, t] = value
        self._final_value[:, t] = 0.0
        self._versions[:, t] = policy_version
        if final_value is not None:
            self._final_value[:, t] = np.where(truncated, np.nan_to_num(final_value, nan=0.0), 0.0)
        if cut is not None:
            self._missing += cut
            ended = ended | cut
        self._append(observation, ended)
        self._count = t + 1
        return unrolls

    def flush(self) -> list[Unroll]:
        """Nothing: an unroll is whole or lost. An actor that leaves loses at most T steps a stream."""
        return []

    def _append(self, observation: Array, ended: Array) -> None:
        """The newest frame of every stream; all S of those that begin an episode."""
        stack = self.layout.stack
        self._flat_frames[self._frame_base + self._used] = observation[:, -1]
        self._used += 1
        if stack > 1 and ended.any():
            for environment in np.flatnonzero(ended).tolist():
                first = int(self._used[environment]) - 1
                self._frames[environment, first : first + stack] = observation[environment]
                self._used[environment] = first + stack

    def _close(self, value: Array) -> list[Unroll]:
        self._position[:, -1] = self._used - 1
        self._value[:, -1] = value
        steps, stack = self.layout.length, self.layout.stack
        unrolls = []
        for environment in range(self.num_envs):
            used = int(self._used[environment])
            if not self._missing[environment]:
                unrolls.append(self._unroll(environment, used))
                self._sequence += 1
            self._frames[environment, :stack] = self._frames[environment, used - stack : used]
        self._used[:] = stack
        self._count = 0
        self.produced += steps * len(unrolls)
        self.cut_steps += steps * (self.num_envs - len(unrolls)) - int(self._missing.sum())
        self._missing[:] = 0
        return unrolls

    def _unroll(self, environment: int, used: int) -> Unroll:
        """The unroll of one stream, whose first ``used`` frames are its own."""
        return Unroll(
            actor=self._actor,
            incarnation=self._incarnation,
            sequence=self._sequence,
            environment=environment,
            policy_version=int(self._versions[environment, 0]),
            epoch=self._began_in_epoch,
            frames=self._frames[environment, :used].copy(),
            observation_at=self._position[environment].copy(),
            action=self._action[environment].copy(),
            reward=self._reward[environment].copy(),
            discount=self._discount[environment].copy(),
            log_prob=self._log_prob[environment].copy(),
            value=self._value[environment].copy(),
            final_value=self._final_value[environment].copy(),
            policy_versions=self._versions[environment].copy(),
            state=self._state[environment].copy(),
        )

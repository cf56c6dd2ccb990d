"""From vector steps to chunks: N streams cut into self-contained pieces, without a Python loop over streams."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.experience.arguments import check_builder, check_first_observation
from rljob.experience.chunk import LIFE_LOST, TERMINATED, TRUNCATED, Chunk
from rljob.experience.layout import ChunkLayout
from rljob.experience.nstep import n_step_windows

Array = NDArray[Any]

# Added to |TD error| so that a perfectly predicted transition can still be sampled.
PRIORITY_FLOOR = 1e-3
# Given to transitions whose values are unknown: the actor had no weights yet.
UNKNOWN_PRIORITY = 1.0


class ChunkBuilder:
    """Records N environment streams and emits a ``Chunk`` whenever one of them has enough complete transitions.

    A transition is complete when its window met the end of an episode (or of a life, when that ends the return) or
    when the value of its bootstrap state is known, which is one step after the n-th reward. The last n steps of a
    chunk's stream therefore stay behind and open the next chunk, together with the S - 1 frames before them.

    The first chunk of each stream gets another length, so that N streams do not all close on the same step.
    Buffers are preallocated; emitted chunks own copies. Not thread-safe.
    """

    def __init__(
        self,
        layout: ChunkLayout,
        num_envs: int,
        gamma: float,
        life_loss_ends_episode: bool,
        actor: str,
        incarnation: str,
        epoch: int,
    ) -> None:
        check_builder(num_envs, gamma)
        self.layout = layout
        self.epoch = epoch
        self.produced = 0
        self.cut_steps = 0
        self._actor = actor
        self._incarnation = incarnation
        self._gamma = gamma
        self._powers = gamma ** np.arange(layout.n_step + 1, dtype=np.float64)
        self.life_loss_ends_episode = life_loss_ends_episode
        self._terminal_bits = TERMINATED | (LIFE_LOST if life_loss_ends_episode else 0)
        self._closing_bits = self._terminal_bits | TRUNCATED
        self._sequence = 0
        self._started = False

        stack, n_step = layout.stack, layout.n_step
        # One step adds at most a final frame and the S frames of a reset. Room for n + 2 such steps beyond a chunk
        # means that a full buffer always holds a complete transition, so closing early always frees room.
        self._most_frames_a_step = stack + 1
        capacity = layout.max_frames + (n_step + 2) * self._most_frames_a_step
        rows = layout.length + n_step + 1
        self._frames: Array = np.zeros((num_envs, capacity, *layout.frame_shape), layout.frame_dtype)
        self._flat_frames = self._frames.reshape(num_envs * capacity, *layout.frame_shape)
        self._frame_base = np.arange(num_envs) * capacity
        self._used = np.zeros(num_envs, np.int64)
        self._close_at_frames = capacity - self._most_frames_a_step

        self._row_base = np.arange(num_envs) * rows
        self._count = np.zeros(num_envs, np.int64)
        self._length = layout.length - np.arange(num_envs) * layout.length // num_envs
        self._columns: dict[str, Array] = {
            "position": np.zeros((num_envs, rows), np.int64),
            "action": np.zeros((num_envs, rows), np.int32),
            "reward": np.zeros((num_envs, rows), np.float32),
            "flags": np.zeros((num_envs, rows), np.uint8),
            "q_taken": np.zeros((num_envs, rows), np.float32),
            "value": np.zeros((num_envs, rows), np.float32),
            "final_value": np.zeros((num_envs, rows), np.float32),
            "policy_version": np.zeros((num_envs, rows), np.int64),
        }
        self._flat: dict[str, Array] = {name: column.reshape(-1) for name, column in self._columns.items()}

    @property
    def num_envs(self) -> int:
        """N, the number of streams."""
        return len(self._count)

    @property
    def pending(self) -> int:
        """Steps recorded and not yet emitted, over all streams; what ``begin`` or dropping the builder would lose."""
        return int(self._count.sum())

    def begin(self, observation: Array) -> int:
        """Start every stream at ``observation`` ``[N, S, *F*]``, the result of a reset.

        Steps still pending are cut off: their bootstrap states will never be seen. Returns how many were.
        """
        layout = self.layout
        check_first_observation(observation, layout, self.num_envs)
        cut = self.pending
        self._count[:] = 0
        self._frames[:, : layout.stack] = observation
        self._used[:] = layout.stack
        self._started = True
        return cut

    def step(
        self,
        action: Array,
        reward: Array,
        terminated: Array,
        truncated: Array,
        life_lost: Array,
        observation: Array,
        final_observation: Array | None,
        q_taken: Array,
        value: Array,
        final_value: Array | None,
        policy_version: Array | int,
        cut: Array | None = None,
    ) -> list[Chunk]:
        """Record one step of all N environments and return the chunks it closed (usually none).

        ``action`` i8[N], ``reward`` f4[N] and the three b1[N] flags describe the step; ``observation`` ``[N, S, *F*]``
        is what follows it, after an automatic reset where an episode ended, and ``final_observation`` (same shape,
        read only in the rows that ended) what the ended episode showed last. ``q_taken`` f4[N] and ``value`` f4[N] are
        Q(s, a) and max_a Q(s, a) of the observation acted on, ``final_value`` f4[N] that maximum for the final
        observations (read only where truncated); NaN where unknown. In rows of ``cut`` b1[N] no step happened: their streams
        begin anew at ``observation``, and steps that were not complete are lost (``cut_steps``). The inputs are copied.

        Raises ``RuntimeError`` before ``begin`` and ``ValueError`` when an episode ended without its final observation.
        """
        if not self._started:
            raise RuntimeError("chunk builder: step() before begin(); there is no observation that was acted on")
        ended = terminated | truncated
        flags = terminated * np.uint8(TERMINATED) | truncated * np.uint8(TRUNCATED) | life_lost * np.uint8(LIFE_LOST)
        rows = self._row_base + self._count
        flat = self._flat
        flat["position"][rows] = self._used - 1
        flat["action"][rows] = action
        flat["reward"][rows] = reward
        flat["flags"][rows] = flags
        flat["q_taken"][rows] = q_taken
        flat["value"][rows] = value
        flat["policy_version"][rows] = policy_version
        self._count += 1

        slots = self._frame_base + self._used
        self._flat_frames[slots] = observation[:, -1]
        self._used += 1
        if ended.any():
            self._record_ends(np.flatnonzero(ended), slots, rows, observation, final_observation, final_value)

        chunks: list[Chunk] = [] if cut is None else self._begin_anew(np.flatnonzero(cut), observation)
        ready = (self._count >= self._length + self.layout.n_step) | (self._used > self._close_at_frames)
        if not ready.any():
            return chunks
        for environment in np.flatnonzero(ready).tolist():
            while self._is_ready(environment):
                chunk = self._close(environment)
                if chunk is None:
                    break
                chunks.append(chunk)
        return chunks

    def flush(self) -> list[Chunk]:
        """Emit every complete transition of every stream.

        The incomplete ones, up to n a stream, stay pending: stepping may go on as if nothing had happened. An actor
        that leaves drops them, which loses a few transitions but never bootstraps from a state that was not reached.
        """
        chunks: list[Chunk] = []
        for environment in range(self.num_envs):
            while (chunk := self._close(environment)) is not None:
                chunks.append(chunk)
        return chunks

    def _begin_anew(self, cut: Array, observation: Array) -> list[Chunk]:
        """Take back the row just written for streams whose step did not happen, emit what is complete, and start over."""
        self._count[cut] -= 1
        self._used[cut] -= 1
        chunks: list[Chunk] = []
        for environment in cut.tolist():
            while (chunk := self._close(environment)) is not None:
                chunks.append(chunk)
        self.cut_steps += int(self._count[cut].sum())
        self._count[cut] = 0
        self._frames[cut, : self.layout.stack] = observation[cut]
        self._used[cut] = self.layout.stack
        return chunks

    def _record_ends(
        self,
        ended: Array,
        slots: Array,
        rows: Array,
        observation: Array,
        final_observation: Array | None,
        final_value: Array | None,
    ) -> None:
        """For the streams that ended: the final frame in place of the newest one, then all S frames of the reset."""
        if final_observation is None:
            raise ValueError(
                "chunk builder: an episode ended without final_observation; truncation could not bootstrap"
            )
        stack = self.layout.stack
        self._flat_frames[slots[ended]] = final_observation[ended, -1]
        self._flat_frames[slots[ended, None] + np.arange(1, stack + 1)] = observation[ended]
        self._used[ended] += stack
        self._flat["final_value"][rows[ended]] = np.nan if final_value is None else final_value[ended]

    def _is_ready(self, environment: int) -> bool:
        full = self._count[environment] >= self._length[environment] + self.layout.n_step
        return bool(full or self._used[environment] > self._close_at_frames)

    def _close(self, environment: int) -> Chunk | None:
        """Turn the oldest complete transitions of one stream into a chunk; None when there are none."""
        layout = self.layout
        count = int(self._count[environment])
        if count == 0:
            return None
        column = {name: values[environment, :count] for name, values in self._columns.items()}
        flags, position = column["flags"], column["position"]
        closes = (flags & self._closing_bits) != 0
        returns, window = n_step_windows(column["reward"], closes, layout.n_step, self._gamma)
        last = np.arange(count) + window - 1
        # Complete transitions form a prefix: a later window never ends before an earlier one.
        complete = int(np.count_nonzero(closes[last] | (last + 1 < count)))
        # The frame after step i is always the next one in the stream: an ordinary next frame or a final one.
        bootstrap_at = position[last] + 1
        first = int(position[0]) - (layout.stack - 1)
        fitting = int(np.searchsorted(bootstrap_at[:complete] - first, layout.max_frames, side="left"))
        steps = min(complete, fitting, int(self._length[environment]))
        if steps == 0:
            return None

        take = slice(0, steps)
        discount = np.where((flags[last] & self._terminal_bits) != 0, 0.0, self._powers[window])[take]
        following = column["value"][np.minimum(last + 1, count - 1)]
        bootstrap_value = np.where((flags[last] & TRUNCATED) != 0, column["final_value"][last], following)[take]
        future = np.where(discount > 0.0, discount * bootstrap_value, 0.0)
        priority = np.abs(returns[take] + future - column["q_taken"][take]) + PRIORITY_FLOOR
        end = int(bootstrap_at[steps - 1]) + 1
        chunk = Chunk(
            actor=self._actor,
            incarnation=self._incarnation,
            sequence=self._sequence,
            environment=environment,
            policy_version=int(column["policy_version"][0]),
            epoch=self.epoch,
            frames=self._frames[environment, first:end].copy(),
            observation_at=(position[take] - first).astype(np.uint16),
            bootstrap_at=(bootstrap_at[take] - first).astype(np.uint16),
            action=column["action"][take].copy(),
            n_step_return=returns[take].astype(np.float32),
            discount=discount.astype(np.float32),
            priority=np.where(np.isfinite(priority), priority, UNKNOWN_PRIORITY).astype(np.float32),
            flags=flags[take].copy(),
        )
        self._sequence += 1
        self.produced += steps
        self._length[environment] = layout.length
        self._carry_over(environment, steps)
        return chunk

    def _carry_over(self, environment: int, steps: int) -> None:
        """Move what follows the emitted ``steps``, with its S - 1 frames of context, to the front of the buffers."""
        count, used = int(self._count[environment]), int(self._used[environment])
        positions = self._columns["position"][environment]
        oldest = int(positions[steps]) if steps < count else used - 1
        shift = oldest - (self.layout.stack - 1)
        for column in self._columns.values():
            column[environment, : count - steps] = column[environment, steps:count]
        positions[: count - steps] -= shift
        self._frames[environment, : used - shift] = self._frames[environment, shift:used]
        self._count[environment] = count - steps
        self._used[environment] = used - shift

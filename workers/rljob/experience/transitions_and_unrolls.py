"""The two kinds of segments: chunks of n-step transitions, which a prioritized replay stores, and unrolls, exactly T consecutive
steps of a stream, which a learner learns from once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.experience.builder import SegmentBuilder
from rljob.experience.columns import TERMINATED, TRUNCATED, Decision, Rows
from rljob.experience.segment import Segment, SegmentLayout
from rljob.observation import Array, by_column

# Added to |TD error| so that a perfectly predicted transition can still be sampled.
PRIORITY_FLOOR = 1e-3
# Given to transitions whose values are unknown: the actor had no weights yet.
UNKNOWN_PRIORITY = 1.0


class TransitionBuilder(SegmentBuilder):
    """Emits a chunk whenever a stream has enough complete transitions.

    A transition is complete when its window met the end of an episode (or of a life, when that ends the return) or
    when the value of its bootstrap state is known, which is one step after the n-th reward. The last n steps of a
    chunk's stream therefore stay behind and open the next chunk, together with the S - 1 frames before them.

    The first chunk of each stream gets another length, so that N streams do not all close on the same step.
    """

    keeps_final_frames = True

    def __init__(self, layout: SegmentLayout, num_envs: int, gamma: float, *args: Any, **named: Any) -> None:
        super().__init__(layout, num_envs, gamma, *args, **named)
        self._powers = gamma ** np.arange(layout.n_step + 1, dtype=np.float64)
        self._length = layout.length - np.arange(num_envs) * layout.length // num_envs
        self._close_at_frames = self._capacity - self._most_frames_a_step

    def flush(self) -> list[Segment]:
        """As of ``SegmentBuilder``. What stays pending is up to n steps a stream, which never bootstraps from a state that was
        not reached."""
        return [chunk for environment in range(self.num_envs) for chunk in self._complete(environment)]

    def _close(self, decision: Decision) -> list[Segment]:
        chunks: list[Segment] = []
        for environment in np.flatnonzero(self._ready()).tolist():
            while self._ready()[environment] and (chunk := self._chunk(environment)) is not None:
                chunks.append(chunk)
        return chunks

    def _cut(self, which: Array, rows: Array, observation: Any) -> list[Segment]:
        """Take the row back, emit what is complete, and start over."""
        self._count[which] -= 1
        chunks = [chunk for environment in which.tolist() for chunk in self._complete(environment)]
        self.cut_steps += int(self._count[which].sum())
        self._count[which] = 0
        self._begin_at(which, by_column(self.layout.observation, observation))
        self._used[which] = self.layout.stack
        return chunks

    def _ready(self) -> NDArray[np.bool_]:
        """Which streams [E] have a chunk's worth."""
        return (self._count >= self._length + self.layout.n_step) | (self._used > self._close_at_frames)

    def _complete(self, environment: int) -> list[Segment]:
        """Every complete transition of one stream."""
        return list(iter(lambda: self._chunk(environment), None))

    def _chunk(self, environment: int) -> Segment | None:
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
        priority = np.abs(returns[take] + future - column["taken"][take]) + PRIORITY_FLOOR
        end = int(bootstrap_at[steps - 1]) + 1
        computed = {
            **self._taken(environment, first, end),
            "observation": (position[take] - first).astype(np.uint16),
            "next_observation": (bootstrap_at[take] - first).astype(np.uint16),
            "n_step_return": returns[take].astype(np.float32),
            "discount": discount.astype(np.float32),
            "priority": np.where(np.isfinite(priority), priority, UNKNOWN_PRIORITY).astype(np.float32),
        }
        recorded = {each.name: column[each.name][take].copy() for each in layout.columns if each.name not in computed}
        version = int(column["version"][0])
        chunk = self._segment(environment, version, self.epoch, steps, computed | recorded)
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
        self._shift(environment, shift, used)
        self._count[environment] = count - steps
        self._used[environment] = used - shift


def n_step_windows(reward: Array, closes: Array, n_step: int, gamma: float) -> tuple[Array, Array]:
    """Sum the discounted rewards of the window that starts at every step.

    The window of step i ends at the first step that ``closes`` it (an end of an episode or of a life), after
    ``n_step`` steps, or at the last step given, whichever comes first:
    ``R[i] = sum over k < m of gamma^k * reward[i + k]`` (Mnih et al. 2016, "forward view", Sutton and Barto ch. 7).

    ``reward`` f4[K] and ``closes`` b1[K] in stream order. Returns ``(R f8[K], m i8[K])`` with m >= 1 the steps from
    step i to its bootstrap state. Whether a window cut by the end of the input is complete is the caller's question.
    """
    steps = len(reward)
    reward = reward.astype(np.float64)  # so that no partial sum is rounded to float32
    total = np.zeros(steps, np.float64)
    length = np.zeros(steps, np.int64)
    open_ = np.ones(steps, bool)
    weight = 1.0
    for offset in range(min(n_step, steps)):
        here = open_[: steps - offset]
        total[: steps - offset] += np.where(here, weight * reward[offset:], 0.0)
        length[: steps - offset] += here
        here &= ~closes[offset:]
        weight *= gamma
    return total, length


_NO_STEP = 128
"""A flag of rows in which no step happened."""


class UnrollBuilder(SegmentBuilder):
    """Emits N unrolls every T steps. All streams are in step with each other. An unroll with a step in it that did not happen is
    not emitted.
    """

    keeps_final_frames = False

    def __init__(self, layout: SegmentLayout, num_envs: int, gamma: float, *args: Any, **named: Any) -> None:
        super().__init__(layout, num_envs, gamma, *args, **named)
        (state,) = (column for column in layout.columns if column.rows is Rows.SEGMENT)
        self._state: Array = np.zeros((num_envs, *state.shape), state.dtype)
        self._began_in_epoch = self.epoch
        self._no_steps = 0  # rows pending that hold no step

    @property
    def pending(self) -> int:
        return super().pending - self._no_steps

    @property
    def steps_into_unroll(self) -> int:
        return int(self._count[0])

    def begin(self, observation: Any) -> int:
        cut = super().begin(observation)
        self._no_steps = 0
        return cut

    def flush(self) -> list[Segment]:
        """Nothing: an unroll is whole or lost. An actor that leaves loses at most T steps a stream."""
        return []

    def _cut(self, which: Array, rows: Array, observation: Any) -> list[Segment]:
        self._flat["flags"][rows[which]] |= _NO_STEP
        self._no_steps += len(which)
        self._begin_episodes(which, observation)
        return []

    def _close(self, decision: Decision) -> list[Segment]:
        if self._count[0] == 1:
            self._began_in_epoch = self.epoch
            if decision.state is not None:
                self._state[:] = decision.state
        return self._unrolls() if self._count[0] == self.layout.length else []

    def _unrolls(self) -> list[Segment]:
        """Emit the T steps of all streams; what they show now stays, for the next ones."""
        steps, columns = self.layout.length, self._columns
        columns["position"][:, steps] = self._used - 1
        position, flags, final_value = (
            columns["position"],
            columns["flags"][:, :steps],
            columns["final_value"][:, :steps],
        )
        ended = np.where((flags & self._terminal_bits) != 0, np.uint8(TERMINATED), flags & np.uint8(TRUNCATED))
        truncated = ended == TRUNCATED
        computed = {
            "observation": position[:, : steps + 1].astype(np.uint16),
            "ended": ended,
            "discount": np.where(ended != 0, np.float32(0.0), np.float32(self._gamma)),
            "final_value": np.where(truncated, np.nan_to_num(final_value, nan=0.0), np.float32(0.0)),
            "state": self._state.copy(),
        }
        names = [column.name for column in self.layout.columns if column.name not in computed]
        computed |= {name: columns[name][:, :steps].copy() for name in names}
        missing = ((flags & _NO_STEP) != 0).sum(axis=1)
        unrolls = []
        for environment, end in enumerate((position[:, steps] + 1).tolist()):
            if missing[environment]:
                self.cut_steps += steps - int(missing[environment])
                continue
            of_stream = {name: values[environment] for name, values in computed.items()}
            of_stream |= self._taken(environment, 0, end)
            version = int(columns["version"][environment, 0])
            unrolls.append(self._segment(environment, version, self._began_in_epoch, steps, of_stream))
        self._no_steps -= int(missing.sum())
        self._carry_over()
        return unrolls

    def _carry_over(self) -> None:
        """Move the frames of the observations behind the unrolls to the front."""
        for environment, used in enumerate(self._used.tolist()):
            self._shift(environment, used - self.layout.stack, used)
        self._used[:] = self.layout.stack
        self._count[:] = 0

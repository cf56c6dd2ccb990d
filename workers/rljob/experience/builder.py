"""From vector steps to segments: N streams recorded into preallocated buffers, without a Python loop over streams."""

from abc import ABC, abstractmethod
from math import prod
from typing import Any, ClassVar

import numpy as np

from rljob.envs.base import StepResult
from rljob.experience.columns import LIFE_LOST, TERMINATED, TRUNCATED, Decision
from rljob.experience.segment import Segment, SegmentLayout
from rljob.observation import Array, by_column

_OWN: tuple[tuple[str, type[np.generic]], ...] = (
    ("position", np.int64),
    ("flags", np.uint8),
    ("reward", np.float32),
    ("taken", np.float32),
    ("value", np.float32),
    ("final_value", np.float32),
    ("version", np.int64),
)
"""What every builder records of a step beside the columns that have a source, to compute the others from."""


class SegmentBuilder(ABC):
    """Records N environment streams and emits segments of them. Steps in, segments out.

    ``produced`` steps are in segments that were emitted, ``cut_steps`` never will be, because the environment failed before they
    were complete, and ``pending`` ones are recorded and not yet emitted. ``epoch``: the life of the learner that the weights come
    from; it is set anew with them. Emitted segments own their arrays. Not thread-safe.
    """

    keeps_final_frames: ClassVar[bool]
    """Whether the final observation of an episode is a part of segments."""

    def __init__(
        self,
        layout: SegmentLayout,
        num_envs: int,
        gamma: float,
        life_loss_ends_episode: bool,
        actor: str,
        incarnation: str,
        epoch: int,
    ) -> None:
        self.layout, self.num_envs, self.epoch, self._gamma = layout, num_envs, epoch, gamma
        self._life_loss_ends_episode, self._actor = life_loss_ends_episode, actor
        self._incarnation = incarnation
        self.produced = self.cut_steps = self._sequence = 0
        self._terminal_bits = TERMINATED | (LIFE_LOST if life_loss_ends_episode else 0)
        self._closing_bits = self._terminal_bits | TRUNCATED
        self._started = False

        # One step adds at most a final frame and the S frames of a reset. Room for n + 2 such steps beyond a segment means
        # that a full buffer always holds a complete step, so closing early always frees room.
        self._most_frames_a_step = layout.stack + 1
        capacity = layout.max_frames + (layout.n_step + 2) * self._most_frames_a_step
        rows = layout.length + layout.n_step + 1
        self._capacity = capacity
        self._observed: dict[str, Array] = {
            column.name: np.zeros((num_envs, capacity, *column.shape), column.dtype) for column in layout.observation
        }
        self._rows = [(values.reshape(-1, *values.shape[2:]), name) for name, values in self._observed.items()]
        self._frame_base = np.arange(num_envs) * capacity
        self._used = np.zeros(num_envs, np.int64)
        self._row_base = np.arange(num_envs) * rows
        self._count = np.zeros(num_envs, np.int64)
        self._columns: dict[str, Array] = {name: np.zeros((num_envs, rows), dtype) for name, dtype in _OWN}
        sources = [(column, column.source) for column in layout.columns if column.source is not None]
        for column, _ in sources:
            self._columns[column.name] = np.zeros((num_envs, rows, *column.shape), column.dtype)
        self._flat = {
            name: values.reshape(prod(values.shape[:2]), *values.shape[2:]) for name, values in self._columns.items()
        }
        self._sources = [(self._flat[column.name], source) for column, source in sources]

    @property
    def pending(self) -> int:
        """Steps recorded and not yet emitted, over all streams; what ``begin`` or dropping the builder would lose."""
        return int(self._count.sum())

    @property
    def steps_into_unroll(self) -> int:
        """Steps of each stream since the current unroll began; 0 between unrolls, and always where there are none."""
        return 0

    def begin(self, observation: Any) -> int:
        """Start every stream at ``observation`` ``[N, S, *F*]``, or such of each column, the result of a reset.

        Steps still pending are cut off: their bootstrap states will never be seen. Returns how many were.
        """
        layout = self.layout
        given = by_column(layout.observation, observation)
        for column in layout.observation:
            array, expected = given[column.name], (self.num_envs, *column.observed)
            if array.shape != expected or array.dtype != column.dtype:
                raise ValueError(
                    f"observation is {array.dtype}{list(array.shape)}, the layout needs {column.dtype}{list(expected)}"
                )
        cut = self.pending
        self._count[:] = 0
        self._begin_at(slice(None), given)
        self._used[:] = layout.stack
        self._started = True
        return cut

    def record(self, decision: Decision, result: StepResult, final_values: Array | None = None) -> list[Segment]:
        """Record one step of all N environments and return the segments it closed (usually none).

        ``decision`` is about the observations acted on, ``result`` what came of it. ``final_values`` f4[N]: what the acting
        policy expects of final observations, read only where an episode was truncated; NaN where unknown. In rows of
        ``result.cut`` no step happened: their streams begin anew. The inputs are copied.

        Raises ``RuntimeError`` before ``begin``.
        """
        if not self._started:
            raise RuntimeError("experience builder: record() before begin(); there is no observation that was acted on")
        terminated, truncated = result.terminated, result.truncated
        rows, flat = self._row_base + self._count, self._flat
        flat["position"][rows] = self._used - 1
        flat["flags"][rows] = (
            terminated * np.uint8(TERMINATED) | truncated * np.uint8(TRUNCATED) | result.life_lost * np.uint8(LIFE_LOST)
        )
        flat["reward"][rows] = result.reward
        flat["taken"][rows] = decision.taken
        flat["value"][rows] = decision.value
        flat["version"][rows] = decision.version
        for values, source in self._sources:
            values[rows] = source(decision, result)
        self._count += 1

        slots = self._frame_base + self._used
        observation = result.observation
        if len(self._rows) == 1:
            self._rows[0][0][slots] = observation[:, -1]
        else:
            for values, name in self._rows:
                values[slots] = observation[name][:, -1]
        self._used += 1
        ended = terminated | truncated
        if ended.any():
            which = np.flatnonzero(ended)
            flat["final_value"][rows[which]] = np.nan if final_values is None else final_values[which]
            if self.keeps_final_frames:
                self._keep_final_frames(which, slots, result.final_observation)
            self._begin_episodes(which, observation)
        segments = [] if result.cut is None else self._cut(np.flatnonzero(result.cut), rows, observation)
        segments += self._close(decision)
        return segments

    @abstractmethod
    def flush(self) -> list[Segment]:
        """Emit every step that is complete. Those that are not stay pending: an actor that leaves loses them."""

    def episode_ends(self, result: StepResult) -> Array:
        """bool[N]: where an episode ends with this step, in whatever way, a lost life included where the job says so."""
        ended: Array = result.terminated | result.truncated
        if result.cut is not None:
            ended = ended | result.cut
        return ended | result.life_lost if self._life_loss_ends_episode else ended

    @abstractmethod
    def _close(self, decision: Decision) -> list[Segment]:
        """Emit the segments that are full with the step just recorded."""

    @abstractmethod
    def _cut(self, which: Array, rows: Array, observation: Any) -> list[Segment]:
        """The step just recorded into ``rows`` did not happen in the streams ``which``; they begin anew at ``observation``."""

    def _segment(
        self, environment: int, policy_version: int, epoch: int, steps: int, columns: dict[str, Array]
    ) -> Segment:
        """The next segment, counted."""
        segment = Segment(
            self.layout,
            self._actor,
            self._incarnation,
            self._sequence,
            environment,
            policy_version,
            epoch,
            steps,
            columns,
        )
        self._sequence += 1
        self.produced += steps
        return segment

    def _keep_final_frames(self, ended: Array, slots: Array, final_observation: Any) -> None:
        """The final frame in place of the one that was just appended, and that one behind it."""
        if final_observation is None:
            raise ValueError(
                "experience builder: an episode ended without final_observation; truncation could not bootstrap"
            )
        given = by_column(self.layout.observation, final_observation)
        for values, name in self._rows:
            values[slots[ended]] = given[name][ended, -1]
        self._used[ended] += 1

    def _begin_episodes(self, which: Array, observation: Any) -> None:
        """All S frames of a first observation, in place of the newest one alone."""
        stack = self.layout.stack
        first = self._frame_base[which] + self._used[which] - 1
        given = by_column(self.layout.observation, observation)
        for values, name in self._rows:
            # A column without a stack has its one row S times.
            values[first[:, None] + np.arange(stack)] = given[name][which]
        self._used[which] += stack - 1

    def _begin_at(self, which: Array | slice, observation: dict[str, Array]) -> None:
        """The streams ``which`` begin with their rows of ``observation``, at the front of the buffers."""
        for name, values in self._observed.items():
            values[which, : self.layout.stack] = observation[name][which]

    def _shift(self, environment: int, begin: int, end: int) -> None:
        """Move the rows from ``begin`` to ``end`` of a stream to the front of the buffers."""
        for values in self._observed.values():
            values[environment, : end - begin] = values[environment, begin:end]

    def _taken(self, environment: int, begin: int, end: int) -> dict[str, Array]:
        """A copy of those rows, by column."""
        return {name: values[environment, begin:end].copy() for name, values in self._observed.items()}

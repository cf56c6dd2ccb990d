"""Unrolls: exactly T consecutive steps of a stream, which a learner learns from once."""

from typing import Any

import numpy as np

from rljob.experience.builder import SegmentBuilder
from rljob.experience.columns import TERMINATED, TRUNCATED, Decision, Rows
from rljob.experience.segment import Segment, SegmentLayout
from rljob.observation import Array

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

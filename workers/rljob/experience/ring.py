"""Slots of a table, the decoded segments in them, the gather that turns slot ids into batches, and the arrays of a batch."""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from rljob.experience.columns import Column, ColumnRole, Rows
from rljob.experience.segment import Segment, SegmentLayout
from rljob.observation import Array, ObservationColumn

Batch = Mapping[str, Array]
"""Arrays by the names of columns, all of the same transitions or unrolls."""


def batch_key(layout: SegmentLayout, name: str, column: ObservationColumn) -> str:
    """What the arrays of a batch call a ``column`` of its observations ``name``: ``observation``, or ``observation.vector`` where
    there are several."""
    return name if len(layout.observation) == 1 else f"{name}.{column.name}"


def transition_arrays(layout: SegmentLayout, size: int, *, rows: bool = False) -> dict[str, Array]:
    """Buffers of zeros for ``size`` transitions, to be passed to ``SegmentRing.gather`` again and again.

    ``STACK`` columns are ``[B, S, *F*]`` in the frames' dtype (oldest frame first), one for each column of observations,
    ``LEARNED`` ones ``[B, *shape]``, and ``policy_version`` is i8[B]. With ``rows``, as from a ring with a store, ``STACK``
    columns are i8[B]: the row of the newest frame of each stack; the stack is that frame and those right before it.
    """
    batch: dict[str, Array] = {"policy_version": np.zeros(size, np.int64)}
    for column in layout.columns:
        if column.role is ColumnRole.STACK:
            batch |= {column.name: np.zeros(size, np.int64)} if rows else _observations(layout, column, size)
        elif column.role is ColumnRole.LEARNED:
            batch[column.name] = np.zeros((size, *column.shape), column.dtype)
    return batch


def unroll_arrays(layout: SegmentLayout, size: int) -> dict[str, Array]:
    """Buffers of zeros for ``size`` unrolls: ``STACK`` columns are ``[B, T + 1, S, *F*]``, one for each column of observations,
    those of a whole segment ``[B, *shape]``, and all others have time first, ``[T, B, *shape]`` (T + 1 where a column has so many
    rows)."""
    batch: dict[str, Array] = {}
    for column in layout.columns:
        rows, *row = column.extent(layout.length)
        if column.role is ColumnRole.STACK:
            batch |= _observations(layout, column, size, rows)
        else:
            extents = (size, *column.shape) if column.rows is Rows.SEGMENT else (rows, size, *row)
            batch[column.name] = np.zeros(extents, column.dtype)
    return batch


def _observations(layout: SegmentLayout, stacks: Column, *extents: int) -> dict[str, Array]:
    return {
        batch_key(layout, stacks.name, column): np.zeros((*extents, *column.observed), column.dtype)
        for column in layout.observation
    }


def take_stacks(frames: Array, newest: Array, stack: int, out: Array) -> None:
    """Copy the ``stack`` frames that end with each of ``newest`` [n] of ``frames`` [P, ...] into ``out``, oldest first."""
    wanted = newest if stack == 1 else (newest[:, None] + np.arange(1 - stack, 1)).ravel()
    # mode="clip" lets numpy write into out directly; "raise" makes it buffer the whole result first.
    np.take(frames, wanted, axis=0, out=out.reshape(len(wanted), *frames.shape[1:]), mode="clip")


def part_of(batch: Batch, rows: slice) -> dict[str, Array]:
    """The ``rows`` of a batch of transitions, which share its memory."""
    return {name: array[rows] for name, array in batch.items()}


_LARGEST_SLOT_ID = 2**32


class Slots:
    """``capacity`` slots of one segment each, by what is needed to know whether a name still holds.

    A step is named by its slot id, ``slot * T + offset``, and by the generation of its slot, which grows each time the slot is
    overwritten: a slot id is meaningful only together with the generation it was given with.

    Not thread-safe. Raises ``ValueError`` for a capacity that slot ids cannot express.
    """

    def __init__(self, layout: SegmentLayout, capacity: int) -> None:
        if capacity * layout.length > _LARGEST_SLOT_ID:
            raise ValueError(
                f"{capacity} slots of segments of {layout.length} steps: slot ids hold at most {_LARGEST_SLOT_ID} "
                "transitions; use more shards"
            )
        self.layout, self.capacity = layout, capacity
        self.capacity_steps = capacity * layout.length
        """Slot ids: steps that there is room for when every segment is full."""
        self.generation: Array = np.zeros(capacity, np.uint32)
        self.length: Array = np.zeros(capacity, np.int32)

    def fill(self, slot: int, generation: int, steps: int) -> None:
        """Record that a segment of ``steps`` steps now fills a slot.

        Raises ``IndexError`` for a slot outside and ``ValueError`` for a generation that does not fit 32 bits.
        """
        if not 0 <= slot < self.capacity:
            raise IndexError(f"slot {slot} of {self.capacity}")
        if not 0 < generation < _LARGEST_SLOT_ID:
            raise ValueError(f"generation {generation} does not fit 32 bits, counted from 1")
        self.length[slot] = steps
        self.generation[slot] = generation

    def empty(self, slot: int) -> None:
        """Empty a slot; its generation stays, so that the next segment in it gets a larger one."""
        self.length[slot] = 0

    def matches(self, slots: Array, generations: Array) -> NDArray[np.bool_]:
        """Which slot ids still hold the step that was given out with ``generations`` (both [n]).

        Safe for any values: ids outside and offsets beyond a short segment do not match.
        """
        slot, offset = np.divmod(slots.astype(np.int64), self.layout.length)
        inside = np.minimum(slot, self.capacity - 1)
        found: NDArray[np.bool_] = (
            (slot < self.capacity) & (self.generation[inside] == generations) & (offset < self.length[inside])
        )
        return found


class SegmentRing(Slots):
    """Slots with the decoded segments in them, every frame stored once, as the mirror of a table has them.

    Memory is reserved for full slots but touched only where segments were written, so that generous slots cost address
    space, not resident memory. A ``store``, such as a GPU's memory, keeps the frames instead, in its rows from ``first_row`` on
    (``max_frames`` a slot): it is given a row and the frames [P, *F*] to keep there and behind, an array that is the
    caller's again when it returns.
    """

    def __init__(
        self,
        layout: SegmentLayout,
        capacity: int,
        store: Callable[[int, Array], None] | None = None,
        first_row: int = 0,
    ) -> None:
        super().__init__(layout, capacity)
        self._store, self._first_row = store, first_row
        steps = self.capacity_steps
        if store is None:
            # One row a frame: gathering whole rows is a copy of memory, whatever the shape of a frame is.
            self._observed: list[tuple[ObservationColumn, Array]] = [
                (column, np.zeros((capacity * layout.max_frames, prod(column.shape)), column.dtype))
                for column in layout.observation
            ]
        # Rows of the frames, not positions inside a segment: one lookup per transition less in every gather.
        self._newest: dict[str, Array] = {
            column.name: np.zeros(steps, np.intp) for column in layout.with_role(ColumnRole.STACK)
        }
        self._columns: dict[str, Array] = {
            column.name: np.zeros((steps, *column.shape), column.dtype)
            for column in layout.with_role(ColumnRole.LEARNED)
        }
        self._version: Array = np.zeros(capacity, np.int64)

    def insert(self, slot: int, generation: int, segment: Segment) -> None:
        """Store a checked segment in a slot. Its arrays are copied; raises as ``fill`` does."""
        self.fill(slot, generation, segment.steps)
        row = self._first_row + slot * self.layout.max_frames
        if self._store is None:
            for column, rows in self._observed:
                values = segment[column.name]
                rows[row : row + len(values)] = values.reshape(len(values), -1)
        else:
            self._store(row, segment[self.layout.observation[0].name])
        first = slot * self.layout.length
        span = slice(first, first + segment.steps)
        for name, rows in self._newest.items():
            np.add(segment[name], row, out=rows[span], dtype=np.intp)
        for name, values in self._columns.items():
            values[span] = segment[name]
        self._version[slot] = segment.policy_version

    def gather(self, slots: Array, out: Batch) -> None:
        """Copy the transitions of ``slots`` (any integer dtype, [n]) into ``out``, ``transition_arrays`` of exactly n rows; of a
        ring with a store, those of ``rows``.

        The caller vouches for the slots (see ``matches``): each names a stored transition.
        """
        ids: Array = slots.astype(np.intp)
        # mode="clip" lets numpy write into out directly; "raise" makes it buffer the whole result first.
        for name, values in self._columns.items():
            np.take(values, ids, axis=0, out=out[name], mode="clip")
        np.take(self._version, ids // self.layout.length, out=out["policy_version"], mode="clip")
        for name, rows in self._newest.items():
            if self._store is not None:
                np.take(rows, ids, out=out[name], mode="clip")
                continue
            newest = rows[ids]
            for column, values in self._observed:
                take_stacks(values, newest, column.stack, out[batch_key(self.layout, name, column)])

"""The arrays of a batch, as a layout has them: what is filled from segments and looked at through ``TransitionBatch`` or
``UnrollBatch``."""

from collections.abc import Mapping

import numpy as np

from rljob.experience.columns import Column, ColumnRole, Rows
from rljob.experience.segment import SegmentLayout
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

"""The arrays of a batch, as a layout has them: what is filled from segments and looked at through ``TransitionBatch`` or
``UnrollBatch``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.experience.columns import Role, Rows
from rljob.experience.layout import SegmentLayout

Array = NDArray[Any]
Batch = Mapping[str, Array]
"""Arrays by the names of columns, all of the same transitions or unrolls."""


def transition_arrays(layout: SegmentLayout, size: int, *, rows: bool = False) -> dict[str, Array]:
    """Buffers of zeros for ``size`` transitions, to be passed to ``SegmentRing.gather`` again and again.

    ``STACK`` columns are ``[B, S, *F*]`` in the frames' dtype (oldest frame first), ``LEARNED`` ones ``[B, *shape]``, and
    ``policy_version`` is i8[B]. With ``rows``, as from a ring with a store, ``STACK`` columns are i8[B]: the row of the newest
    frame of each stack; the stack is that frame and those right before it.
    """
    batch: dict[str, Array] = {"policy_version": np.zeros(size, np.int64)}
    for column in layout.columns:
        if column.role is Role.STACK:
            stack = (size, layout.stack, *layout.frame_shape)
            batch[column.name] = np.zeros(size, np.int64) if rows else np.zeros(stack, layout.frame_dtype)
        elif column.role is Role.LEARNED:
            batch[column.name] = np.zeros((size, *column.shape), column.dtype)
    return batch


def unroll_arrays(layout: SegmentLayout, size: int) -> dict[str, Array]:
    """Buffers of zeros for ``size`` unrolls: ``STACK`` columns are ``[B, T + 1, S, *F*]``, those of a whole segment
    ``[B, *shape]``, and all others have time first, ``[T, B, *shape]`` (T + 1 where a column has so many rows)."""
    batch: dict[str, Array] = {}
    for column in layout.columns:
        rows, *row = column.extent(layout.length)
        if column.role is Role.STACK:
            batch[column.name] = np.zeros((size, rows, layout.stack, *layout.frame_shape), layout.frame_dtype)
        elif column.rows is Rows.SEGMENT:
            batch[column.name] = np.zeros((size, *column.shape), column.dtype)
        else:
            batch[column.name] = np.zeros((rows, size, *row), column.dtype)
    return batch


def part_of(batch: Batch, rows: slice) -> dict[str, Array]:
    """The ``rows`` of a batch of transitions, which share its memory."""
    return {name: array[rows] for name, array in batch.items()}

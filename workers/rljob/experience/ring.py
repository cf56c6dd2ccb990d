"""Decoded chunks in fixed slots, and the gather that turns slot ids into batches of transitions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rljob.experience import Chunk, ChunkLayout

Array = NDArray[Any]

_LARGEST_SLOT_ID = 2**32


@dataclass(frozen=True, slots=True, eq=False)
class TransitionArrays:
    """B transitions, row i of every array belonging to slot id i of the request.

    ``observation`` and ``next_observation`` ``[B, S, *F*]`` in the frames' dtype (oldest frame first), ``action`` i4[B],
    ``n_step_return`` f4[B], ``discount`` f4[B] (multiplies the value of ``next_observation``), ``policy_version`` i8[B].
    """

    observation: Array
    next_observation: Array
    action: Array
    n_step_return: Array
    discount: Array
    policy_version: Array

    @classmethod
    def empty(cls, layout: ChunkLayout, size: int) -> TransitionArrays:
        """Uninitialised buffers for ``size`` transitions, to be passed to ``ChunkRing.gather`` again and again."""
        shape = (size, layout.stack, *layout.frame_shape)
        return cls(
            observation=np.empty(shape, layout.frame_dtype),
            next_observation=np.empty(shape, layout.frame_dtype),
            action=np.empty(size, np.int32),
            n_step_return=np.empty(size, np.float32),
            discount=np.empty(size, np.float32),
            policy_version=np.empty(size, np.int64),
        )

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True, slots=True, eq=False)
class TransitionRows:
    """B transitions as ``TransitionArrays`` has them, but with the places of frames instead of the frames.

    ``observation_row`` and ``bootstrap_row`` i8[B]: the row of the newest frame of each stack in the ring's ``FrameStore``; the
    stack is that frame and those right before it.
    """

    observation_row: Array
    bootstrap_row: Array
    action: Array
    n_step_return: Array
    discount: Array
    policy_version: Array

    @classmethod
    def empty(cls, size: int) -> TransitionRows:
        """Uninitialised buffers for ``size`` transitions."""
        return cls(
            observation_row=np.empty(size, np.int64),
            bootstrap_row=np.empty(size, np.int64),
            action=np.empty(size, np.int32),
            n_step_return=np.empty(size, np.float32),
            discount=np.empty(size, np.float32),
            policy_version=np.empty(size, np.int64),
        )

    def __len__(self) -> int:
        return len(self.action)


Batch = TypeVar("Batch", TransitionArrays, TransitionRows)


def part_of(batch: Batch, rows: slice) -> Batch:
    """The ``rows`` of a batch, which share its memory."""
    return type(batch)(**{column.name: getattr(batch, column.name)[rows] for column in fields(batch)})


class FrameStore(Protocol):
    """Where frames are kept that are not in the ring's own memory, such as in a GPU's. A row is a frame."""

    def write(self, row: int, frames: Array) -> None:
        """Keep ``frames`` [P, *F*] in ``row`` and those after it. The array is the caller's again when this returns."""
        ...


class ChunkRing:
    """``capacity_chunks`` slots of one chunk each, every frame stored once.

    A transition is named by its slot id, ``chunk_slot * T + offset``, and by the generation of its chunk slot, which
    grows each time the slot is overwritten: a slot id is meaningful only together with the generation it was given with.

    Memory is reserved for full slots but touched only where chunks were written, so that generous slots cost address
    space, not resident memory. With ``keep_frames=False`` only the generations and lengths are kept and ``gather`` is
    refused; that is all a service needs whose learner mirrors the frames. With a ``store`` the frames are kept there, in its
    rows from ``first_row`` on (``max_frames`` a slot); ``gather_rows`` then says where, instead of ``gather``.

    Not thread-safe: one thread inserts and gathers. Raises ``ValueError`` for a capacity that slot ids cannot express.
    """

    def __init__(
        self,
        layout: ChunkLayout,
        capacity_chunks: int,
        keep_frames: bool = True,
        store: FrameStore | None = None,
        first_row: int = 0,
    ) -> None:
        if capacity_chunks < 1:
            raise ValueError(f"ring of {capacity_chunks} chunks, it must hold at least 1")
        if capacity_chunks * layout.length > _LARGEST_SLOT_ID:
            raise ValueError(
                f"ring of {capacity_chunks} chunks of {layout.length} steps: slot ids hold at most {_LARGEST_SLOT_ID} "
                "transitions; use more shards"
            )
        self.layout = layout
        self.capacity_chunks = capacity_chunks
        self.keep_frames = keep_frames
        self.generation: Array = np.zeros(capacity_chunks, np.uint32)
        self.length: Array = np.zeros(capacity_chunks, np.int32)
        self._next = 0
        self._store, self._first_row = store, first_row
        if keep_frames:
            steps = capacity_chunks * layout.length
            if store is None:
                elements = int(np.prod(layout.frame_shape, dtype=np.int64))
                self._frames: Array = np.zeros((capacity_chunks * layout.max_frames, elements), layout.frame_dtype)
            # Rows of the frames, not positions inside a chunk: one lookup per transition less in every gather.
            self._observation_row: Array = np.zeros(steps, np.intp)
            self._bootstrap_row: Array = np.zeros(steps, np.intp)
            self._action: Array = np.zeros(steps, np.int32)
            self._return: Array = np.zeros(steps, np.float32)
            self._discount: Array = np.zeros(steps, np.float32)
            self._version: Array = np.zeros(capacity_chunks, np.int64)
            self._window: Array = np.arange(1 - layout.stack, 1, dtype=np.intp)

    @property
    def capacity_steps(self) -> int:
        """Slot ids of this ring: transitions it can hold when every chunk is full."""
        return self.capacity_chunks * self.layout.length

    def insert(self, chunk: Chunk) -> tuple[int, int]:
        """Store a chunk in the next slot in turn, over the oldest one. Returns its (chunk slot, generation)."""
        slot = self._next
        generation = int(self.generation[slot]) + 1
        self.insert_at(slot, generation, chunk)
        self._next = (slot + 1) % self.capacity_chunks
        return slot, generation

    def insert_at(self, slot: int, generation: int, chunk: Chunk) -> None:
        """Store a chunk in a given slot, as a mirror does.

        The chunk must satisfy the layout (``chunk.check(layout)``); its arrays are copied.
        Raises ``IndexError`` for a slot outside the ring and ``ValueError`` for a generation that does not fit 32 bits.
        """
        if not 0 <= slot < self.capacity_chunks:
            raise IndexError(f"chunk slot {slot} in a ring of {self.capacity_chunks}")
        if not 0 < generation < _LARGEST_SLOT_ID:
            raise ValueError(f"generation {generation} does not fit 32 bits, counted from 1")
        steps = chunk.steps
        if self.keep_frames:
            row = self._first_row + slot * self.layout.max_frames
            first = slot * self.layout.length
            if self._store is None:
                self._frames[row : row + len(chunk.frames)] = chunk.frames.reshape(len(chunk.frames), -1)
            else:
                self._store.write(row, chunk.frames)
            span = slice(first, first + steps)
            np.add(chunk.observation_at, row, out=self._observation_row[span], dtype=np.intp)
            np.add(chunk.bootstrap_at, row, out=self._bootstrap_row[span], dtype=np.intp)
            self._action[span] = chunk.action
            self._return[span] = chunk.n_step_return
            self._discount[span] = chunk.discount
            self._version[slot] = chunk.policy_version
        self.length[slot] = steps
        self.generation[slot] = generation

    def remember(self, slot: int, generation: int, steps: int) -> None:
        """Record that a chunk of ``steps`` steps now fills a slot, for a ring that keeps no frames."""
        if self.keep_frames:
            raise ValueError("this ring keeps frames, insert the chunk itself")
        self.length[slot] = steps
        self.generation[slot] = generation

    def forget(self, slot: int) -> None:
        """Empty a slot; its generation stays, so that the next chunk in it gets a larger one."""
        self.length[slot] = 0

    def matches(self, slots: Array, generations: Array) -> NDArray[np.bool_]:
        """Which slot ids still hold the transition that was given out with ``generations`` (both [n]).

        Safe for any values: ids outside the ring and offsets beyond a short chunk do not match.
        """
        chunk, offset = np.divmod(slots.astype(np.int64), self.layout.length)
        chunk_in_ring = np.minimum(chunk, self.capacity_chunks - 1)
        found: NDArray[np.bool_] = (
            (chunk < self.capacity_chunks)
            & (self.generation[chunk_in_ring] == generations)
            & (offset < self.length[chunk_in_ring])
        )
        return found

    def gather(self, slots: Array, out: TransitionArrays | None = None) -> TransitionArrays:
        """Copy the transitions of ``slots`` (any integer dtype, [n]) into ``out`` (of exactly n rows) or new buffers.

        The caller vouches for the slots (see ``matches``): each names a stored transition. The batch belongs to the
        caller. Raises ``ValueError`` when the ring keeps no frames itself or ``out`` has another size.
        """
        if not self.keep_frames:
            raise ValueError("this ring keeps no frames; subscribe in index mode and gather from the mirror")
        if self._store is not None:
            raise ValueError("the frames of this ring are in a store of their own; gather_rows says where")
        if out is None:
            out = TransitionArrays.empty(self.layout, len(slots))
        ids = self._columns(slots, out)
        self._stack(self._observation_row[ids], out.observation)
        self._stack(self._bootstrap_row[ids], out.next_observation)
        return out

    def gather_rows(self, slots: Array, out: TransitionRows) -> None:
        """``gather``, with the places of frames in the ``store`` instead of the frames."""
        if self._store is None:
            raise ValueError("this ring has no store to have rows in; gather its transitions")
        ids = self._columns(slots, out)
        np.take(self._observation_row, ids, out=out.observation_row, mode="clip")
        np.take(self._bootstrap_row, ids, out=out.bootstrap_row, mode="clip")

    def _columns(self, slots: Array, out: TransitionArrays | TransitionRows) -> Array:
        """Copy what a gather of either kind gives; the ids as an index."""
        if len(out) != len(slots):
            raise ValueError(f"gather of {len(slots)} transitions into buffers for {len(out)}")
        ids: Array = slots.astype(np.intp)
        # mode="clip" lets numpy write into out directly; "raise" makes it buffer the whole result first.
        np.take(self._action, ids, out=out.action, mode="clip")
        np.take(self._return, ids, out=out.n_step_return, mode="clip")
        np.take(self._discount, ids, out=out.discount, mode="clip")
        np.take(self._version, ids // self.layout.length, out=out.policy_version, mode="clip")
        return ids

    def _stack(self, newest: Array, out: Array) -> None:
        rows = (newest[:, None] + self._window).ravel()
        np.take(self._frames, rows, axis=0, out=out.reshape(len(rows), -1), mode="clip")

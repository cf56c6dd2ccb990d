"""The mirror of the replay in the memory of the learner's device: frames are written there once and become stacks there.

A batch then crosses the bus as row numbers and small columns, 16 kB instead of the 29 MB of 512 transitions of four 84x84 frames
and their successors. One thread, the prefetch thread, asks for everything, and the device does it in that order: a stack is
gathered before a later chunk overwrites its frames, and after the chunk that brought them, as in a mirror in the host's memory.
"""

import logging
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rljob.algorithms.batches import TransitionBatch, as_batch
from rljob.api.local import two_digits
from rljob.errors import first_line
from rljob.experience import ColumnRole, SegmentLayout, SegmentRing, part_of, transition_arrays
from rljob.learner.optim.on_device import DEPTH
from rljob.learner.staging import AtOnce, BufferRing, SideStream, Staging, TransitionStaging, on_host, stream_beside

log = logging.getLogger(__name__)

CHUNKS_UNDER_WAY: Final = 16
"""Chunks that may be on their way to the device at once; for one more, the prefetch thread waits for the oldest."""

_WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


class DeviceMirror:
    """The frames of all shards, ``slots`` chunks of each, on ``device``. All memory is taken when it is made. It is for layouts
    whose observations are one column.

    It is the store of the rings that ``ring`` makes; everything but the frames stays with those, on the host. Frames are
    held as words of up to 8 bytes, so that a gather moves few of them. What belongs to the prefetch thread is not thread-safe.

    Raises torch.OutOfMemoryError where the device has not so much to give.
    """

    def __init__(self, layout: SegmentLayout, slots: int, shards: int, device: torch.device) -> None:
        self.layout, self.device, self._slots = layout, device, slots
        self.stream: SideStream | AtOnce = stream_beside(device)
        (self.column,) = layout.observation
        self._word = next(word for word in _WORDS if layout.row_bytes % word.itemsize == 0)
        self._words = layout.row_bytes // self._word.itemsize
        rows = shards * slots * layout.max_frames
        self._frames, _ = self.stream.run(lambda: self.room_for(rows))
        self.nbytes = self._frames.nbytes
        """What it takes of the device's memory."""
        self._window, _ = self.stream.run(lambda: torch.arange(1 - layout.stack, 1, device=device))
        self._chunks = BufferRing((self._chunk_staging() for _ in range(CHUNKS_UNDER_WAY)), dict, self.stream)

    def ring(self, shard: int, slots: int) -> SegmentRing:
        """An empty mirror of ``shard``'s table, which has so many slots. Raises ValueError for more than there is room for."""
        if slots > self._slots:
            raise ValueError(
                f"it has {slots} chunks, and the learner's device has room for {self._slots} of each shard; start both from "
                "the same manifest"
            )
        return SegmentRing(self.layout, slots, store=self.write, first_row=shard * self._slots * self.layout.max_frames)

    def room_for(self, frames: int) -> Tensor:
        """Uninitialised memory on the device, [frames, words]."""
        return torch.empty(frames, self._words, dtype=self._word, device=self.device)

    def write(self, row: int, frames: NDArray[Any]) -> None:
        """Keep ``frames`` [P, *F*] in ``row`` and those after it."""
        count = len(frames)
        buffer = self._chunks.take_waiting()
        buffer.arrays["frames"][:count] = frames.reshape(count, -1)
        into, new = self._frames[row : row + count], buffer.tensors["frames"][:count]
        _, buffer.copied = self.stream.run(lambda: into.copy_(new, non_blocking=True))
        self._chunks.give_back(buffer)

    def gather(self, newest: Tensor, out: Tensor) -> None:
        """Copy the stack that ends with each row of ``newest`` (int64 [n], on the host) to ``out`` [n * S, words]. To be
        called inside of ``stream.run``."""
        rows = newest.to(self.device, non_blocking=True).unsqueeze(1) + self._window
        torch.index_select(self._frames, 0, rows.flatten(), out=out)

    def observation(self, stacks: Tensor) -> Tensor:
        """[B * S, words] as what it is, [B, S, *F*] in the frames' dtype."""
        return stacks.view(getattr(torch, str(self.column.dtype))).view(-1, *self.column.observed)

    def _chunk_staging(self) -> Staging:
        """Room for the frames of one chunk."""
        host = torch.empty(self.layout.max_frames, self._words, dtype=self._word, pin_memory=self.device.type == "cuda")
        return Staging({"frames": host}, {"frames": host.numpy().view(self.column.dtype)})


class MirrorStaging(TransitionStaging):
    """One batch on its way from a mirror on the device: host memory for its columns, and its stacks on the device as they are
    gathered."""

    def __init__(self, mirror: DeviceMirror, batch_size: int) -> None:
        arrays = transition_arrays(mirror.layout, batch_size, rows=True) | {"weight": np.ones(batch_size, np.float32)}
        super().__init__(*on_host(arrays, mirror.device))
        self._mirror, self._batch_size = mirror, batch_size
        stacks = mirror.layout.with_role(ColumnRole.STACK)
        self._newest = {column.name: self.tensors.pop(column.name) for column in stacks}
        self._stacks: dict[str, Tensor] = {}

    def fill(self, rows: slice, slots: NDArray[Any], ring: SegmentRing) -> None:
        """Fill ``rows`` in with what a shard has drawn, and have the device gather the stacks. ``ring`` is the mirror's."""
        ring.gather(slots, part_of(self.arrays, rows))
        self._mirror.stream.run(lambda: self._gather(rows))

    def batch(self, tensors: dict[str, Tensor]) -> TransitionBatch:
        """The stacks gathered since the last one, with these columns of the same rows; all on the device."""
        stacks, self._stacks = self._stacks, {}
        observations = {name: self._mirror.observation(frames) for name, frames in stacks.items()}
        return as_batch(TransitionBatch, observations | tensors)

    def _gather(self, rows: slice) -> None:
        stack = self._mirror.layout.stack
        for name, newest in self._newest.items():
            if name not in self._stacks:
                self._stacks[name] = self._mirror.room_for(self._batch_size * stack)
            self._mirror.gather(newest[rows], self._stacks[name][rows.start * stack : rows.stop * stack])


class MirrorStagingRing(BufferRing[MirrorStaging]):
    """``count`` buffers for batches of ``batch_size`` transitions out of ``mirror``."""

    def __init__(self, mirror: DeviceMirror, batch_size: int, count: int) -> None:
        super().__init__((MirrorStaging(mirror, batch_size) for _ in range(count)), dict, mirror.stream)

    def upload(self, staging: MirrorStaging) -> tuple[Any, Any]:
        """As of ``BufferRing``: the small columns are copied behind the stacks."""
        batch, staging.copied = self._stream.copy(staging.tensors, staging.batch)
        return batch, staging.copied


_GIB: Final = 1 << 30
_SMALLEST_MARGIN_BYTES: Final = 1 * _GIB
_MARGIN_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class MirrorSize:
    """What the frames of all shards' mirrors take on a device, where memory is taken for every slot when the mirror is made.

    ``slots``: chunks that a shard's table has room for. ``capacity``: transitions over all shards, for advice."""

    layout: SegmentLayout
    slots: int
    shards: int
    capacity: int

    @property
    def nbytes(self) -> int:
        """Bytes of all frames."""
        return self.shards * self.slots * self.layout.max_frames * self.layout.row_bytes


def margin_bytes(layout: SegmentLayout, batch_size: int, prefetch: int, total_bytes: int) -> int:
    """What a mirror leaves free on a device of ``total_bytes``, once torch holds what the gradient of an update needs: a tenth,
    1 GiB at least, for the optimiser and for others on the device; and the batches that may lie there at once."""
    batches = prefetch + 2 + DEPTH
    stacks = 2 * batch_size * layout.stack * layout.row_bytes
    return max(_SMALLEST_MARGIN_BYTES, int(total_bytes * _MARGIN_SHARE)) + batches * stacks


def fits(size: MirrorSize, free_bytes: int, margin_bytes: int) -> tuple[bool, str]:
    """Whether ``size`` fits into what is free on the device less the margin; and where the mirror is then and why, for people."""
    wanted, allowed = size.nbytes, max(0, free_bytes - margin_bytes)
    free = f"of the GPU's {_gib(free_bytes)} of free memory {_gib(min(margin_bytes, free_bytes))} stay for updates"
    if wanted <= allowed:
        return True, f"on the GPU: it takes {_gib(wanted)}; {free}"
    smaller = int(size.capacity * (allowed / wanted))
    advice = f"; a replay.capacity of about {two_digits(smaller):,} would fit" if smaller >= size.layout.length else ""
    return False, f"in RAM: it would take {_gib(wanted)}, and {free}{advice}"


def mirror_for(
    size: MirrorSize, batch_size: int, prefetch: int, device: torch.device
) -> tuple[DeviceMirror | None, str]:
    """The mirror on ``device``, or None where it belongs into RAM, and where it is and why. To be asked once torch holds on the
    device what the gradient of an update needs (``plan.fastest_arithmetic`` has tried one)."""
    if device.type == "cpu":
        return None, "in RAM, as the learner computes on the CPU"
    if len(size.layout.observation) > 1:
        return None, "in RAM, as observations have more than one column"
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    on_device, told = fits(size, free, margin_bytes(size.layout, batch_size, prefetch, total))
    mirror = None
    if on_device:
        try:
            mirror = DeviceMirror(size.layout, size.slots, size.shards, device)
        except torch.OutOfMemoryError as error:  # another process was quicker
            told = f"in RAM: the GPU did not give {_gib(size.nbytes)} ({first_line(error)})"
    log.info("the mirror of the replay is %s", told)
    return mirror, told


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.1f} GiB"

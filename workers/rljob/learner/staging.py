"""Reusable buffers between the wire and the device: filled by the prefetch thread, used by the training loop.

On a CPU the loop computes straight from the buffer and gives it back after the update. On CUDA the buffer is pinned; a side
stream copies it to the device while the previous update still runs, and an event says when the buffer may be filled again.
A buffer is never handed out while a copy from it, or a computation on it, may be under way.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_leaves

from rljob.algorithms.batches import TransitionBatch, UnrollBatch, as_batch
from rljob.experience import (
    ColumnRole,
    Rows,
    Segment,
    SegmentLayout,
    SegmentRing,
    batch_key,
    part_of,
    take_stacks,
    transition_arrays,
    unroll_arrays,
)

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Staging:
    """One batch of host memory. ``arrays`` are numpy views of ``tensors``, and ``policy_version`` int64, which stays on the host:
    who chose each action. ``copied``: the event that says when a copy from ``tensors`` has finished."""

    tensors: dict[str, Tensor]
    arrays: dict[str, NDArray[Any]]
    copied: Any = None


B = TypeVar("B", bound=Staging)


class TransitionStaging(Staging):
    """One of transitions, in the shapes of ``TransitionBatch``."""

    def fill(self, rows: slice, slots: NDArray[Any], ring: SegmentRing) -> None:
        """Fill ``rows`` in with the transitions that a shard has drawn, from its mirror."""
        ring.gather(slots, part_of(self.arrays, rows))


class UnrollStaging(Staging):
    """One of unrolls, in the shapes of ``UnrollBatch``."""

    def fill(self, unrolls: Sequence[Segment]) -> None:
        """Copy B checked unrolls in, unroll b into column b. Frames that came once become stacks here."""
        layout = unrolls[0].layout
        for column in layout.columns:
            if column.role is ColumnRole.STACK:
                self._stack(column.name, unrolls)
                continue
            into = self.arrays[column.name]
            for b, unroll in enumerate(unrolls):
                if column.rows is Rows.SEGMENT:
                    into[b] = unroll[column.name]
                else:
                    into[:, b] = unroll[column.name]

    def _stack(self, name: str, unrolls: Sequence[Segment]) -> None:
        layout = unrolls[0].layout
        for observed in layout.observation:
            into = self.arrays[batch_key(layout, name, observed)]
            for b, unroll in enumerate(unrolls):
                take_stacks(unroll[observed.name], unroll[name].astype(np.intp), observed.stack, into[b])


def on_current_stream(batch: Any, ready: Any) -> Any:
    """``batch``, with the current CUDA stream made to wait for its copy (``ready``: None on a CPU); the host does not wait."""
    if ready is not None:
        stream = torch.cuda.current_stream()
        stream.wait_event(ready)
        for tensor in tree_leaves(batch):
            if tensor is not None:
                tensor.record_stream(stream)
    return batch


BatchOf = Callable[[dict[str, Tensor]], Any]
"""Makes a batch of a buffer's tensors, wherever they are by then."""


class SideStream:
    """Copies to and from a CUDA device, and between its tensors, beside what is computed there; one after the other."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def run(self, work: Callable[[], T]) -> tuple[T, Any]:
        """Starts ``work``: what it gives, and the event after which the device has done it."""
        with torch.cuda.stream(self._stream):
            result = work()
            done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record(self._stream)
        return result, done

    def copy(self, tensors: dict[str, Tensor], batch_of: BatchOf) -> tuple[Any, Any]:
        """Starts a copy: the batch on the device, and the event after which it is there and ``tensors`` may be overwritten."""
        return self.run(
            lambda: batch_of({name: tensor.to(self._device, non_blocking=True) for name, tensor in tensors.items()})
        )


class AtOnce:
    """Stands for a side stream on a CPU: everything is done at once, there is no event, and nothing is copied."""

    def run(self, work: Callable[[], T]) -> tuple[T, Any]:
        """What ``work`` gives."""
        return work(), None

    def copy(self, tensors: dict[str, Tensor], batch_of: BatchOf) -> tuple[Any, Any]:
        """The batch of ``tensors``, where they lie."""
        return batch_of(tensors), None


def stream_beside(device: torch.device) -> SideStream | AtOnce:
    """What brings batches to ``device``."""
    return SideStream(device) if device.type == "cuda" else AtOnce()


class BufferRing(Generic[B]):
    """Some buffers for batches. ``take`` and ``upload`` belong to the prefetch thread, ``give_back`` to the training loop.

    ``stream`` copies; without a device beside the host a batch is computed from where it lies, and the same rules hold. A buffer
    that was given back is taken again only once its copy has finished.
    """

    def __init__(self, buffers: Iterable[B], batch_of: BatchOf, stream: SideStream | AtOnce) -> None:
        self._batch_of, self._stream = batch_of, stream
        self._free = deque(buffers)

    def take(self) -> B | None:
        """A buffer that may be overwritten, or None while all of them are in use."""
        for _ in range(len(self._free)):
            staging = self._free.popleft()
            if staging.copied is None or staging.copied.query():
                return staging
            self._free.append(staging)
        return None

    def take_waiting(self) -> B:
        """A buffer that may be overwritten; where copies from all of them are under way, that of the oldest once it has finished.
        For an owner that gives every buffer back as soon as its copy has been started."""
        staging = self.take()
        if staging is None:
            staging = self._free.popleft()
            staging.copied.synchronize()
        return staging

    def available(self) -> int:
        """Buffers that ``take`` could give out, now or once their copy has finished."""
        return len(self._free)

    def upload(self, staging: B) -> tuple[Any, Any]:
        """The buffer's contents as a batch on the device, and the event after which it is there (None on a CPU)."""
        batch, staging.copied = self._stream.copy(staging.tensors, self._batch_of)
        return batch, staging.copied

    def give_back(self, staging: B) -> None:
        """The loop no longer computes from this buffer; on CUDA its event still guards it."""
        self._free.append(staging)


def transition_buffers(
    layout: SegmentLayout, batch_size: int, count: int, device: torch.device
) -> BufferRing[TransitionStaging]:
    """``count`` buffers for batches of ``batch_size`` transitions."""

    buffers = (
        TransitionStaging(
            *on_host(transition_arrays(layout, batch_size) | {"weight": np.ones(batch_size, np.float32)}, device)
        )
        for _ in range(count)
    )
    return BufferRing(buffers, partial(as_batch, TransitionBatch), stream_beside(device))


def unroll_buffers(
    layout: SegmentLayout, batch_size: int, count: int, device: torch.device
) -> BufferRing[UnrollStaging]:
    """``count`` buffers for batches of ``batch_size`` unrolls."""

    buffers = (UnrollStaging(*on_host(unroll_arrays(layout, batch_size), device)) for _ in range(count))
    return BufferRing(buffers, partial(as_batch, UnrollBatch), stream_beside(device))


def on_host(arrays: dict[str, NDArray[Any]], device: torch.device) -> tuple[dict[str, Tensor], dict[str, NDArray[Any]]]:
    """Tensors of ``arrays``, in memory that a copy to ``device`` is fast from, and their views; versions have none."""
    versions = {"policy_version": arrays.pop("policy_version")}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if device.type == "cuda":
        tensors = {name: tensor.pin_memory() if tensor.numel() else tensor for name, tensor in tensors.items()}
    return tensors, {name: tensor.numpy() for name, tensor in tensors.items()} | versions

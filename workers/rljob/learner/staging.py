"""Reusable buffers between the wire and the device: filled by the prefetch thread, used by the training loop.

On a CPU the loop computes straight from the buffer and gives it back after the update. On CUDA the buffer is pinned; a side
stream copies it to the device while the previous update still runs, and an event says when the buffer may be filled again.
A buffer is never handed out while a copy from it, or a computation on it, may be under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rljob.algorithms.batches import TransitionBatch
from rljob.experience import ChunkLayout
from rljob.experience.ring import ChunkRing, TransitionArrays, part_of
from rljob.learner.shard import FRAME_COLUMNS


class Buffers(Protocol):
    """Host memory for one batch: ``tensors`` by name, and the event that says when a copy from them has finished."""

    tensors: dict[str, Tensor]
    copied: Any


B = TypeVar("B", bound=Buffers)
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Staging:
    """One batch of host memory. ``transitions`` and ``weight`` (float32[B]) are numpy views of ``tensors``."""

    tensors: dict[str, Tensor]
    transitions: TransitionArrays
    weight: NDArray[np.float32]
    copied: Any = None

    @property
    def policy_version(self) -> NDArray[np.int64]:
        """Int64 [B]: the behaviour version of each transition, which stays on the host."""
        return self.transitions.policy_version

    def fill(self, rows: slice, columns: Mapping[str, NDArray[Any]], ring: ChunkRing | None) -> None:
        """Fill ``rows`` in with what a shard has drawn: slot ids in its mirror ``ring``, or without one the frames themselves."""
        into = part_of(self.transitions, rows)
        if ring is not None:
            ring.gather(columns["slot"], into)
        else:
            for name, column in FRAME_COLUMNS.items():
                np.copyto(getattr(into, name), columns[column])


class TransitionBuffers(Buffers, Protocol):
    """What the prefetch thread fills for one batch of transitions: a ``Staging``, or one for a mirror on the device."""

    weight: NDArray[np.float32]

    @property
    def policy_version(self) -> NDArray[np.int64]: ...
    def fill(self, rows: slice, columns: Mapping[str, NDArray[Any]], ring: ChunkRing | None) -> None: ...


def on_current_stream(batch: Any, ready: Any) -> Any:
    """``batch``, with the current CUDA stream made to wait for its copy (``ready``: None on a CPU); the host does not wait."""
    if ready is not None:
        stream = torch.cuda.current_stream()
        stream.wait_event(ready)
        for tensor in batch:
            if tensor is not None:
                tensor.record_stream(stream)
    return batch


@dataclass(frozen=True, slots=True)
class Part:
    """The ``rows`` of a batch that came from replay shard ``shard``, in subscription number ``subscription`` to it."""

    shard: int
    subscription: int
    rows: slice


@dataclass(frozen=True, slots=True, eq=False)
class ReadyBatch:
    """A batch to learn from, and what is needed to say afterwards what was learned.

    ``batch`` is on the device. ``parts``, ``slots`` u4[B] and ``generations`` u4[B] name its transitions; ``policy_version``
    int64[B] is the behaviour version of each, 0 for a random actor.
    """

    batch: TransitionBatch
    parts: tuple[Part, ...]
    slots: NDArray[np.uint32]
    generations: NDArray[np.uint32]
    policy_version: NDArray[np.int64]
    staging: TransitionBuffers
    ready: Any = None

    def wait(self) -> TransitionBatch:
        """The batch, once the device has it; the host does not wait."""
        batch: TransitionBatch = on_current_stream(self.batch, self.ready)
        return batch

    def newest_frames(self) -> Tensor:
        """The newest frame of every observation, [B, *F*]."""
        return self.wait().observation[:, -1]


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
    """What a side stream is on a CPU: everything is done when it is asked for, there is no event, and nothing is copied."""

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

    ``stream`` copies; without a device beside the host a batch is computed from where it lies, and the same rules hold. Whoever
    has given a buffer back gets it again only once its copy has finished.
    """

    def __init__(self, buffers: Iterable[B], batch_of: BatchOf, stream: SideStream | AtOnce) -> None:
        self._batch_of = batch_of
        self._stream = stream
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


class StagingRing(BufferRing[Staging]):
    """``count`` buffers for batches of ``batch_size`` transitions."""

    def __init__(self, layout: ChunkLayout, batch_size: int, count: int, device: torch.device) -> None:
        buffers = [_allocate(layout, batch_size, pinned=device.type == "cuda") for _ in range(count)]
        super().__init__(buffers, _batch, stream_beside(device))


def _batch(tensors: dict[str, Tensor]) -> TransitionBatch:
    return TransitionBatch(
        observation=tensors["observation"],
        next_observation=tensors["next_observation"],
        action=tensors["action"].long(),
        n_step_return=tensors["n_step_return"],
        discount=tensors["discount"],
        weight=tensors["weight"],
    )


def _allocate(layout: ChunkLayout, size: int, *, pinned: bool) -> Staging:
    host = TransitionArrays.empty(layout, size)
    names = ("observation", "next_observation", "action", "n_step_return", "discount")
    tensors = {name: torch.from_numpy(getattr(host, name)) for name in names}
    tensors["weight"] = torch.ones(size)
    if pinned:
        tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
    views = {name: tensors[name].numpy() for name in names}
    return Staging(tensors, TransitionArrays(policy_version=host.policy_version, **views), tensors["weight"].numpy())

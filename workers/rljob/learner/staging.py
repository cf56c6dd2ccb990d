"""Reusable buffers between the wire and the device: filled by the prefetch thread, used by the training loop.

On a CPU the loop computes straight from the buffer and gives it back after the update. On CUDA the buffer is pinned; a side
stream copies it to the device while the previous update still runs, and an event says when the buffer may be filled again.
A buffer is never handed out while a copy from it, or a computation on it, may be under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rljob.algorithms.batches import TransitionBatch
from rljob.experience import ChunkLayout
from rljob.experience.ring import TransitionArrays


class Buffers(Protocol):
    """Host memory for one batch: ``tensors`` by name, and the event that says when a copy from them has finished."""

    tensors: dict[str, Tensor]
    copied: Any


B = TypeVar("B", bound=Buffers)


@dataclass(slots=True, eq=False)
class Staging:
    """One batch of host memory. ``transitions`` and ``weight`` (float32[B]) are numpy views of ``tensors``."""

    tensors: dict[str, Tensor]
    transitions: TransitionArrays
    weight: NDArray[np.float32]
    copied: Any = None


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
    staging: Staging
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
    """Copies pinned buffers to a CUDA device beside what is computed there."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copy(self, tensors: dict[str, Tensor], batch_of: BatchOf) -> tuple[Any, Any]:
        """Starts a copy: the batch on the device, and the event after which it is there and ``tensors`` may be overwritten."""
        with torch.cuda.stream(self._stream):
            batch = batch_of({name: tensor.to(self._device, non_blocking=True) for name, tensor in tensors.items()})
            copied: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(self._stream)
        return batch, copied


class BufferRing(Generic[B]):
    """Some buffers for batches. ``take`` and ``upload`` belong to the prefetch thread, ``give_back`` to the training loop.

    ``stream`` copies; None: a batch is computed from where it lies, and the same rules hold. Whoever has given a buffer back
    gets it again only once its copy has finished.
    """

    def __init__(self, buffers: Iterable[B], batch_of: BatchOf, stream: SideStream | None = None) -> None:
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

    def available(self) -> int:
        """Buffers that ``take`` could give out, now or once their copy has finished."""
        return len(self._free)

    def upload(self, staging: B) -> tuple[Any, Any]:
        """The buffer's contents as a batch on the device, and the event after which it is there (None on a CPU)."""
        if self._stream is None:
            return self._batch_of(staging.tensors), None
        batch, staging.copied = self._stream.copy(staging.tensors, self._batch_of)
        return batch, staging.copied

    def give_back(self, staging: B) -> None:
        """The loop no longer computes from this buffer; on CUDA its event still guards it."""
        self._free.append(staging)


class StagingRing(BufferRing[Staging]):
    """``count`` buffers for batches of ``batch_size`` transitions."""

    def __init__(self, layout: ChunkLayout, batch_size: int, count: int, device: torch.device) -> None:
        stream = SideStream(device) if device.type == "cuda" else None
        buffers = [_allocate(layout, batch_size, pinned=stream is not None) for _ in range(count)]
        super().__init__(buffers, _batch, stream)


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

"""Reusable buffers between the wire and the device: filled by the prefetch thread, used by the training loop.

On a CPU the loop computes straight from the buffer and gives it back after the update. On CUDA the buffer is pinned; a side
stream copies it to the device while the previous update still runs, and an event says when the buffer may be filled again.
A buffer is never handed out while a copy from it, or a computation on it, may be under way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rljob.algorithms.apex_dqn import Batch
from rljob.experience import ChunkLayout
from rljob.replay.ring import TransitionBatch


@dataclass(slots=True, eq=False)
class Staging:
    """One batch of host memory. ``transitions`` and ``weight`` (float32[B]) are numpy views of ``tensors``."""

    tensors: dict[str, Tensor]
    transitions: TransitionBatch
    weight: NDArray[np.float32]
    copied: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class ReadyBatch:
    """A batch to learn from, and what is needed to say afterwards what was learned.

    ``batch`` is on the device. ``shard``, ``slots`` u4[B] and ``generations`` u4[B] name its transitions; ``policy_version``
    int64[B] is the behaviour version of each, 0 for a random actor.
    """

    batch: Batch
    shard: int
    slots: NDArray[np.uint32]
    generations: NDArray[np.uint32]
    policy_version: NDArray[np.int64]
    staging: Staging
    ready: Any = None

    def wait(self) -> Batch:
        """The batch, with the current CUDA stream made to wait for its copy; the host does not wait."""
        if self.ready is not None:
            stream = torch.cuda.current_stream()
            stream.wait_event(self.ready)
            for tensor in self.batch:
                tensor.record_stream(stream)
        return self.batch


class StagingRing:
    """``count`` buffers for batches of ``batch_size``. ``take`` and ``upload`` belong to the prefetch thread, ``give_back``
    to the training loop."""

    def __init__(self, layout: ChunkLayout, batch_size: int, count: int, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._stream: Any = torch.cuda.Stream(device) if self._cuda else None  # type: ignore[no-untyped-call]
        self._free = deque(_allocate(layout, batch_size, pinned=self._cuda) for _ in range(count))

    def take(self) -> Staging | None:
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

    def upload(self, staging: Staging) -> tuple[Batch, Any]:
        """The buffer's contents as a batch on the device, and the event after which it is there (None on a CPU)."""
        if self._stream is None:
            return _batch(staging.tensors), None
        with torch.cuda.stream(self._stream):
            moved = {name: tensor.to(self._device, non_blocking=True) for name, tensor in staging.tensors.items()}
            batch = _batch(moved)
            staging.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            staging.copied.record(self._stream)
        return batch, staging.copied

    def give_back(self, staging: Staging) -> None:
        """The loop no longer computes from this buffer; on CUDA its event still guards it."""
        self._free.append(staging)


def _batch(tensors: dict[str, Tensor]) -> Batch:
    return Batch(
        observation=tensors["observation"],
        next_observation=tensors["next_observation"],
        action=tensors["action"].long(),
        n_step_return=tensors["n_step_return"],
        discount=tensors["discount"],
        weight=tensors["weight"],
    )


def _allocate(layout: ChunkLayout, size: int, *, pinned: bool) -> Staging:
    host = TransitionBatch.empty(layout, size)
    names = ("observation", "next_observation", "action", "n_step_return", "discount")
    tensors = {name: torch.from_numpy(getattr(host, name)) for name in names}
    tensors["weight"] = torch.ones(size)
    if pinned:
        tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
    views = {name: tensors[name].numpy() for name in names}
    return Staging(tensors, TransitionBatch(policy_version=host.policy_version, **views), tensors["weight"].numpy())

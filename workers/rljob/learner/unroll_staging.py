"""Buffers for batches of unrolls, and their filling: frames that came once become stacks here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rljob.algorithms.batches import UnrollBatch
from rljob.experience import Unroll, UnrollLayout
from rljob.learner.staging import BufferRing, on_current_stream, stream_beside

Array = NDArray[Any]


@dataclass(slots=True, eq=False)
class UnrollStaging:
    """One batch of host memory; ``arrays`` are numpy views of ``tensors``, in the shapes of ``UnrollBatch``.

    ``policy_version`` int64 [T, B] stays on the host.
    """

    tensors: dict[str, Tensor]
    arrays: dict[str, Array]
    policy_version: NDArray[np.int64]
    copied: Any = None

    def fill(self, unrolls: Sequence[Unroll], layout: UnrollLayout) -> None:
        """Copy B checked unrolls in, unroll b into column b."""
        window = np.arange(1 - layout.stack, 1)
        arrays = self.arrays
        for b, unroll in enumerate(unrolls):
            rows = (unroll.observation_at.astype(np.intp)[:, None] + window).ravel()
            out = arrays["observation"][b].reshape(len(rows), *layout.frame_shape)
            np.take(unroll.frames, rows, axis=0, out=out, mode="clip")
            for name in ("action", "reward", "discount", "log_prob", "final_value", "value"):
                arrays[name][:, b] = getattr(unroll, name)
            arrays["state"][b] = unroll.state
            self.policy_version[:, b] = unroll.policy_versions


@dataclass(frozen=True, slots=True, eq=False)
class ReadyUnrolls:
    """A batch of unrolls to learn from. ``policy_version`` int64 [T, B]: who acted; ``epoch``: of which life of the learner."""

    batch: UnrollBatch
    policy_version: NDArray[np.int64]
    epoch: int
    staging: UnrollStaging
    ready: Any = None

    def wait(self) -> UnrollBatch:
        """The batch, once the device has it; the host does not wait."""
        batch: UnrollBatch = on_current_stream(self.batch, self.ready)
        return batch

    def newest_frames(self) -> Tensor:
        """The newest frame of every observation but the last of each unroll, which the next unroll shows again: [B * T, *F*]."""
        return self.wait().observation[:, :-1, -1].flatten(0, 1)


class UnrollStagingRing(BufferRing[UnrollStaging]):
    """``count`` buffers for batches of ``batch_size`` unrolls."""

    def __init__(self, layout: UnrollLayout, batch_size: int, count: int, device: torch.device) -> None:
        buffers = [_allocate(layout, batch_size, pinned=device.type == "cuda") for _ in range(count)]
        super().__init__(buffers, _batch, stream_beside(device))


def _batch(tensors: dict[str, Tensor]) -> UnrollBatch:
    return UnrollBatch(**tensors)


def _allocate(layout: UnrollLayout, size: int, *, pinned: bool) -> UnrollStaging:
    steps = layout.length
    frames = getattr(torch, str(layout.frame_dtype))
    shape = (size, steps + 1, layout.stack, *layout.frame_shape)
    tensors = {
        "observation": torch.empty(shape, dtype=frames, pin_memory=pinned),
        "action": torch.empty(steps, size, dtype=torch.int64, pin_memory=pinned),
        "state": torch.empty(size, 2, layout.memory, pin_memory=pinned and layout.memory > 0),
        "value": torch.empty(steps + 1, size, pin_memory=pinned),
    }
    for name in ("reward", "discount", "log_prob", "final_value"):
        tensors[name] = torch.empty(steps, size, pin_memory=pinned)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    return UnrollStaging(tensors, arrays, np.zeros((steps, size), np.int64))

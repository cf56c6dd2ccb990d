"""The way of an update's numbers from the device to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Readback:
    """Brings what an update computed to the host without making it wait.

    On a CPU ``push`` returns the numbers at once. On CUDA it starts a copy into pinned memory and returns those of the update
    before, whose copy has finished by then.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._waiting: tuple[Any, Tensor, Any, int] | None = None

    def push(
        self, item: Any, priorities: Tensor, figures: Tensor
    ) -> tuple[Any, NDArray[np.float32], NDArray[np.float32]] | None:
        """``item`` comes back together with its numbers: (item, priorities float32[B], figures float32[K])."""
        if not self._cuda:
            return item, priorities.numpy(), figures.numpy()
        host = torch.empty(len(priorities) + len(figures), pin_memory=True)
        host.copy_(torch.cat([priorities, figures]), non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        before, self._waiting = self._waiting, (item, host, event, len(priorities))
        return None if before is None else _arrived(*before)

    def drain(self) -> None:
        """Forget what is under way (its batches belong to weights that have been replaced)."""
        self._waiting = None


def _arrived(
    item: Any, host: Tensor, event: Any, priorities: int
) -> tuple[Any, NDArray[np.float32], NDArray[np.float32]]:
    event.synchronize()
    numbers = host.numpy()
    return item, numbers[:priorities], numbers[priorities:]

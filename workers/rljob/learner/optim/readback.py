"""The way of an update's numbers from the device to the host, without making the host wait."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DEPTH: Final = 4
"""Updates that the host may be ahead of the device. With fewer, a device whose updates are short waits for the host's next turn;
with more, new priorities would come later than they need to."""


Arrived: TypeAlias = tuple[Any, NDArray[np.float32], NDArray[np.float32]]
"""(item, priorities float32[B], figures float32[K])"""


class Readback:
    """Brings what updates computed to the host, in their order.

    On a CPU ``push`` gives the numbers at once. On CUDA it starts a copy into pinned memory and gives what has arrived by then;
    only where more than ``DEPTH`` copies are under way does it wait, for the oldest, so that a host that is faster than its
    device keeps step with it. ``event`` makes what says that a copy has finished; None: copies are not needed.
    """

    def __init__(self, device: torch.device, event: Callable[[], Any] | None = None) -> None:
        self._event = event or (torch.cuda.Event if device.type == "cuda" else None)
        self._pinned = device.type == "cuda"
        self._under_way: deque[tuple[Any, Tensor, Any, int]] = deque()

    def push(self, item: Any, priorities: Tensor, figures: Tensor) -> Iterator[Arrived]:
        """Each ``item`` that was pushed comes back once, with its numbers.

        The copy begins when the iteration does. What ``drain`` forgets meanwhile does not come any more.
        """
        if self._event is None:
            yield item, priorities.numpy(), figures.numpy()
            return
        host = torch.empty(len(priorities) + len(figures), pin_memory=self._pinned)
        host.copy_(torch.cat([priorities, figures]), non_blocking=True)
        event = self._event()
        event.record()
        self._under_way.append((item, host, event, len(priorities)))
        yield from self.arrived()

    def arrived(self) -> Iterator[Arrived]:
        """What has come by now, and what is too far behind."""
        while self._under_way and (len(self._under_way) > DEPTH or self._under_way[0][2].query()):
            yield self._oldest()

    def rest(self) -> Iterator[Arrived]:
        """All that is under way, each waited for."""
        while self._under_way:
            yield self._oldest()

    def drain(self) -> None:
        """Forget what is under way (its batches belong to weights that have been replaced)."""
        self._under_way.clear()

    def _oldest(self) -> Arrived:
        item, host, event, priorities = self._under_way.popleft()
        event.synchronize()
        numbers = host.numpy()
        return item, numbers[:priorities], numbers[priorities:]


class LateNumber:
    """One number of each batch: on a CPU at once, on CUDA once it has arrived.

    As with ``Readback`` the caller does not wait, unless more than ``DEPTH`` are under way, or it ``waits`` for each.
    """

    def __init__(self, device: torch.device, event: Callable[[], Any] | None = None, *, waits: bool = False) -> None:
        self._readback, self._waits = Readback(device, event), waits
        self._nothing = torch.empty(0, device=device)

    def push(self, number: Tensor) -> list[float]:
        """Takes a batch's number; those that have arrived by now, oldest first."""
        arrived = [*self._readback.push(None, self._nothing, number.detach().reshape(1))]
        arrived += self._readback.rest() if self._waits else ()
        return [float(came[0]) for _, _, came in arrived]

    def drain(self) -> None:
        """Forget what is under way (its batches belong to weights that have been replaced)."""
        self._readback.drain()

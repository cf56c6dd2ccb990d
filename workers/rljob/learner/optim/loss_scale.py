"""By how much a loss is multiplied before it is differentiated in fp16, so that small gradients do not round to nothing.

As in Micikevicius et al. 2018 ("Mixed Precision Training", section 3.2): as large as possible, halved whenever a gradient
overflows and that update is skipped. torch's own ``GradScaler`` is made for optimisers that it steps itself; here the gradients
of several threads are added up in float32 first.
"""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

FIRST: Final = 2.0**16
GROWTH_UPDATES: Final = 2000
"""So many updates without an overflow double it: an update in so many is tried and lost."""


class LossScale:
    """``factor``, float32 on ``device``: 1 or more, a power of two, so that scaling rounds nothing. The host never waits for it.

    Its numbers keep their place in memory, where a CUDA graph of the update reads and changes them.
    """

    def __init__(self, device: torch.device, first: float = FIRST, growth_updates: int = GROWTH_UPDATES) -> None:
        self._growth_updates = growth_updates
        self.factor = torch.tensor(first, device=device)
        """That of the next update; ``follow`` changes it in place."""
        self._good = torch.zeros((), device=device)

    @torch.no_grad()
    def follow(self, norm: Tensor) -> None:
        """An update has ended whose gradient had this norm; one that is not finite was skipped."""
        fits = torch.isfinite(norm)
        good = torch.where(fits, self._good + 1.0, 0.0)
        grows = good >= self._growth_updates
        change = torch.where(fits, torch.where(grows, 2.0, 1.0), 0.5)
        self.factor.mul_(change).clamp_(min=1.0)
        self._good.copy_(torch.where(grows, 0.0, good))

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of it."""
        return {"factor": self.factor, "good_updates": self._good}

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Go on with what ``state`` gave."""
        self.factor.copy_(saved["factor"])
        self._good.copy_(saved["good_updates"])

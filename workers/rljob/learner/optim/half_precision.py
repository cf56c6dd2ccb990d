"""Computing in 16 bits with float32 weights: the copy that computes, and in fp16 the factor that the loss is scaled by."""

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from rljob.algorithms.trunk import FrameNetwork
from rljob.learner.optim.sharded_optimizer import ParameterSlice


class HalfWeightsCopy:
    """Stands in for ``network`` where it computes in bf16 or fp16: a copy whose trunk is stored so, converted once an update.

    Where ``network`` computes in float32 there is no copy, and it stands for itself. ``network`` keeps the float32 weights that
    learn, are published and are saved. Used by one thread at a time, but for ``update``; several may compute with ``module``.
    """

    def __init__(self, network: FrameNetwork) -> None:
        self._copied = network.plan.half is not None
        self.module = network.working_copy() if self._copied else network
        self._masters, self._copies = _tensors(network), _tensors(self.module)
        self._versions: list[int] = []

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters to differentiate by, in the order of the network's own."""
        return list(self.module.parameters())

    @torch.no_grad()
    def update(self, shard: Sequence[ParameterSlice]) -> None:
        """Bring a shard of the parameters up to date. Several threads may, each with its own; then call ``mark_updated``."""
        if self._copied:
            copies, masters = ([each.select(tensors) for each in shard] for tensors in (self._copies, self._masters))
            torch._foreach_copy_(copies, masters)

    def mark_updated(self) -> None:
        """All shards have been brought up to date: ``refresh`` need not do it."""
        self._versions = self._master_versions()

    @torch.no_grad()
    def refresh(self) -> None:
        """Bring ``module`` up to date if the network has changed since it was."""
        if self._copied and self._master_versions() != self._versions:
            self.convert()

    @torch.no_grad()
    def convert(self) -> None:
        """Bring all of ``module`` up to date, whether or not the network has changed."""
        if self._copied:
            torch._foreach_copy_(self._copies, self._masters)
            self.mark_updated()

    def _master_versions(self) -> list[int]:
        return [tensor._version for tensor in self._masters]


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


FIRST: Final = 2.0**16
GROWTH_UPDATES: Final = 2000
"""So many updates without an overflow double it: an update in so many is tried and lost."""


class LossScale:
    """By how much a loss is multiplied before it is differentiated in fp16, so that small gradients do not round to nothing.

    As in Micikevicius et al. 2018 ("Mixed Precision Training", section 3.2): as large as possible, halved whenever a gradient
    overflows and that update is skipped. torch's own ``GradScaler`` is made for optimisers that it steps itself; here the
    gradients of several threads are added up in float32 first.

    ``factor``, float32 on ``device``: 1 or more, a power of two, so that scaling rounds nothing. The host never waits for it.

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

"""What a network is computed with: itself, or a copy whose weights are stored in 16 bits."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rljob.algorithms.trunk import FrameNetwork
from rljob.learner.optim.data_parallel_threads import ParameterSlice


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

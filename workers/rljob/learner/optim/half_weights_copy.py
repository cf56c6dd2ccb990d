"""What a network is computed with: itself, or a copy whose weights are stored in 16 bits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rljob.algorithms.trunk import FrameNetwork
from rljob.learner.optim.parameter_slice import ParameterSlice


class HalfWeightsCopy:
    """Stands in for ``network`` where it computes in bf16 or fp16: a copy whose trunk is stored so, converted once an update.

    Where ``network`` computes in float32 there is no copy, and it stands for itself. ``network`` keeps the float32 weights that
    learn, are published and are saved. Used by one thread at a time, but for ``update``; the module that ``current`` gives may
    be computed with by several.
    """

    def __init__(self, network: FrameNetwork) -> None:
        self._copied = network.plan.half is not None
        self._module = network.working_copy() if self._copied else network
        self._masters, self._copies = _tensors(network), _tensors(self._module)
        self._versions: list[int] = []

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters to differentiate by, in the order of the network's own."""
        return list(self._module.parameters())

    @torch.no_grad()
    def update(self, shard: Sequence[ParameterSlice]) -> None:
        """Bring a shard of the parameters up to date. Several threads may, each with its own; then call ``mark_updated``."""
        if self._copied:
            copies, masters = ([each.select(tensors) for each in shard] for tensors in (self._copies, self._masters))
            torch._foreach_copy_(copies, masters)

    def mark_updated(self) -> None:
        """All shards have been brought up to date: ``current`` need not do it."""
        self._versions = self._master_versions()

    @torch.no_grad()
    def current(self) -> FrameNetwork:
        """The module to compute with, brought up to date if the network has changed since the last call."""
        if self._copied and (versions := self._master_versions()) != self._versions:
            torch._foreach_copy_(self._copies, self._masters)
            self._versions = versions
        return self._module

    def _master_versions(self) -> list[int]:
        return [tensor._version for tensor in self._masters]


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]

"""Running statistics of what a learner learns from, which become buffers of its networks. Nothing else counts or sets them.

Each batch that is drawn counts once, however often it is learned from: in float64, for float32 stops counting at 16.8 million.
The buffers follow between two batches and only together with a published version, so that all updates from a batch, and those
who act with a version, see the same numbers. Nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rljob.algorithms.batches import TransitionBatch, UnrollBatch
from rljob.algorithms.trunk import FrameNetwork
from rljob.algorithms.vtrace import discounted
from rljob.observation import by_column, each

LEAST_DEVIATION = 1e-2
"""What is divided by at least: a number that never changes has a deviation of 0."""


class RunningMoments:
    """``count`` of rows of ``width`` numbers, their ``mean`` and the sum ``m2`` of squared differences from it, float64."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.count = torch.zeros((), dtype=torch.float64, device=device)
        self.mean = torch.zeros(width, dtype=torch.float64, device=device)
        self.m2 = torch.zeros(width, dtype=torch.float64, device=device)

    @property
    def deviation(self) -> Tensor:
        """At least ``LEAST_DEVIATION``; the variance is that over ``count``."""
        return (self.m2 / self.count.clamp(min=1.0)).sqrt().clamp(min=LEAST_DEVIATION)

    def merge(self, rows: Tensor) -> Tensor:
        """Add ``rows`` float64 [N, width] (Chan et al. 1979), none of them if a number is not finite; returns whether, bool."""
        count = len(rows)
        variance, mean = torch.var_mean(rows, dim=0, correction=0)
        finite = mean.isfinite().all()
        total, apart = self.count + count, mean - self.mean
        m2 = self.m2 + variance * count + apart.square() * (self.count * count / total)
        moved = self.mean + apart * (count / total)
        for own, new in ((self.count, total), (self.mean, moved), (self.m2, m2)):
            own.copy_(torch.where(finite, new, own))
        return finite


class Normalizer:
    """The statistics that the buffers ``STATISTICS`` of ``network`` are made of, of batches.

    Those of observations are of the numbers that are recorded as vectors: of transitions those acted in, of unrolls all but the
    last, which the next one shows again. Those of returns, which only unrolls have, in the last place, are of the discounted
    rewards from each of these steps on, with the value that ``network`` expects behind the unroll (of a memory as it was before
    it): an update's value targets would need its whole forward pass.

    What values expect counts at most as the largest reward so far, for ever. They are in units of the very deviation that is
    measured: where they drift, as behind time limits that observations tell of, each would drive the other beyond all bounds.
    """

    def __init__(self, network: FrameNetwork, gamma: float) -> None:
        self._network: Any = network
        self._columns, self._gamma, device = network.columns, gamma, network.mean.device
        observed, self._of_returns = network.observation_mean, network.return_scale is not None
        self._normalized = torch.zeros(0 if observed is None else len(observed), dtype=torch.bool, device=device)
        for leaf in network.normalized:
            self._normalized[leaf.span] = True
        self._moments = RunningMoments(len(self._normalized) + self._of_returns, device)
        self._largest = torch.zeros((), dtype=torch.float64, device=device)
        self.left_out = torch.zeros((), dtype=torch.int64, device=device)
        """Batches with a number that is not finite, on the device."""

    @classmethod
    def of(cls, network: FrameNetwork, gamma: float) -> Normalizer | None:
        """None for a network that normalises nothing."""
        return cls(network, gamma) if network.normalized or network.return_scale is not None else None

    @torch.no_grad()
    def take(self, batch: TransitionBatch | UnrollBatch) -> None:
        """Count a batch that was drawn."""
        rows = []
        if len(self._normalized):
            vectors: Tensor = by_column(self._columns, batch.observation)["vector"]
            replayed = isinstance(batch, TransitionBatch)
            rows.append(vectors[:, -1] if replayed else vectors[:, :-1, -1].transpose(0, 1).flatten(0, 1))
        if self._of_returns:
            assert isinstance(batch, UnrollBatch), "only unrolls say what returns were"
            self._meet(batch.reward)
            reward = batch.reward + self._gamma * self._bounded(batch.final_value)
            behind = self._network(each(lambda of: of[:, -1], batch.observation), batch.state).value
            # A network whose input was never normalised may expect anything.
            behind = torch.where(self._moments.count > 0, behind, torch.zeros_like(behind))
            rows.append(discounted(reward, batch.discount, self._bounded(behind)).view(-1, 1))
        self.left_out += self._moments.merge(torch.cat(rows, dim=1).double()).logical_not()

    def _meet(self, reward: Tensor) -> None:
        largest = torch.maximum(self._largest, reward.abs().max().double())
        self._largest.copy_(torch.where(largest.isfinite(), largest, self._largest))

    def _bounded(self, value: Tensor) -> Tensor:
        """``value`` within what any return can be; a number that is not finite stays, which leaves its batch out."""
        if self._gamma >= 1.0:
            return value
        bound = (self._largest / (1.0 - self._gamma)).float()
        return torch.where(value.isfinite(), value.clamp(-bound, bound), value)

    @torch.no_grad()
    def apply(self, networks: Iterable[nn.Module]) -> None:
        """Set the buffers of ``networks``: the one that learns and those that follow it. Until a batch has counted they stay as
        they are, and where vectors have whole numbers always."""
        mean, deviation = self._moments.mean.float(), self._moments.deviation.float()
        counted, width = self._moments.count > 0, len(self._normalized)
        new: dict[str, tuple[Tensor, Tensor]] = {}
        if width:
            chosen = self._normalized & counted
            new["observation_mean"] = chosen, mean[:width]
            new["observation_scale"] = chosen, 1.0 / deviation[:width]
        if self._of_returns:
            new["return_scale"] = counted, deviation[-1]
        for network in networks:
            for place, buffer in network.named_buffers():  # of parts that are networks themselves, too
                if (found := new.get(place.rpartition(".")[2])) is not None:
                    buffer.copy_(torch.where(*found, buffer))

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps: the accumulators themselves."""
        moments = self._moments
        return {"count": moments.count, "mean": moments.mean, "m2": moments.m2, "largest_reward": self._largest}

    def load(self, state: Mapping[str, Tensor]) -> bool:
        """Go on from what ``state`` gave; False where it was of other numbers, or of none, and counting begins anew."""
        own = self.state()
        fits = all(name in state and state[name].shape == tensor.shape for name, tensor in own.items())
        for name, tensor in own.items():
            tensor.copy_(state[name]) if fits else tensor.zero_()
        return fits

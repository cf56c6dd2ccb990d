"""Running statistics of what a learner learns from, which become buffers of its networks. Nothing else counts or sets them.

Each batch that is drawn counts once, however often it is learned from: in float64, for float32 stops counting at 16.8 million.
The buffers follow between two batches and only together with a published version, so that all updates from a batch, and those
who act with a version, see the same numbers. Nothing here waits for the device.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from rljob.algorithms.batches import TransitionBatch, UnrollBatch
from rljob.algorithms.trunk import FrameNetwork
from rljob.algorithms.vtrace import discounted
from rljob.learner.ranks import Ranks
from rljob.observation import by_column

LEAST_DEVIATION = 1e-12
"""What is divided by at least, in any unit: less is what rounding leaves of a number that never changes."""
LEAST_OF_OBSERVATIONS, LEAST_OF_RETURNS = 1e-6, 0.1
"""The same as a share of the mean, so that no unit matters: float32 tells no finer observations apart, and a value head gives ten
times what its errors are divided by at most where all returns are about the same."""


class RunningMoments:
    """``count`` of rows of ``width`` numbers, their ``mean`` and the sum ``m2`` of squared differences from it, float64."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.count = torch.zeros((), dtype=torch.float64, device=device)
        self.mean = torch.zeros(width, dtype=torch.float64, device=device)
        self.m2 = torch.zeros(width, dtype=torch.float64, device=device)

    def deviation(self, least: float) -> Tensor:
        """At least the share ``least`` of the mean's size; the variance is that over ``count``."""
        return torch.maximum((self.m2 / self.count.clamp(min=1.0)).sqrt(), least * self.mean.abs())

    def merge(self, rows: Tensor, ranks: Ranks | None = None) -> Tensor:
        """Add ``rows`` float64 [N, width] (Chan et al. 1979), and those of the other ``ranks``; none of a rank's where one of its
        numbers is not finite. Returns how many ranks' were left out."""
        variance, mean = torch.var_mean(rows, dim=0, correction=0)
        parts = torch.cat([mean.new_tensor([len(rows)]), mean, variance])[None]
        if ranks is not None:
            parts = ranks.rows(parts[0])
        for count, mean, variance in (each.split([1, len(mean), len(mean)]) for each in parts):
            finite = mean.isfinite().all()
            total, apart = (self.count + count).clamp(min=1.0), mean - self.mean
            m2 = self.m2 + variance * count + apart.square() * (self.count * count / total)
            moved = self.mean + apart * (count / total)
            for own, new in ((self.count, (self.count + count)[0]), (self.mean, moved), (self.m2, m2)):
                own.copy_(torch.where(finite, new, own))
        return parts.isfinite().all(dim=1).logical_not().sum()


class Normalizer:
    """The statistics that the buffers ``STATISTICS`` of ``network`` are made of, of batches.

    Those of observations are of the numbers that are recorded as vectors: of transitions those acted in, of unrolls all but the
    last, which the next one shows again. Those of returns, in the last place, are of n-step returns, or of the discounted rewards
    from each step of an unroll on, up to its end or the episode's.

    They are of rewards alone and of no value: values are in units of the very deviation that is measured, and each would drive
    the other beyond all bounds wherever values drift, as behind time limits with a gamma of 1.
    """

    def __init__(self, network: FrameNetwork) -> None:
        self._columns, device = network.columns, network.mean.device
        observed, self._of_returns = network.observation_mean, network.return_scale is not None
        self._normalized = torch.zeros(0 if observed is None else len(observed), dtype=torch.bool, device=device)
        for leaf in network.normalized:
            self._normalized[leaf.span] = True
        self._moments = RunningMoments(len(self._normalized) + self._of_returns, device)
        self.left_out = torch.zeros((), dtype=torch.int64, device=device)
        """Batches with a number that is not finite, on the device."""
        self.ranks: Ranks | None = None
        """Where set: the batches of all ranks count."""

    @classmethod
    def of(cls, network: FrameNetwork) -> "Normalizer | None":
        """None for a network that normalises nothing."""
        return cls(network) if network.normalized or network.return_scale is not None else None

    @torch.no_grad()
    def take(self, batch: TransitionBatch | UnrollBatch) -> None:
        """Count a batch that was drawn."""
        rows = []
        if len(self._normalized):
            vectors: Tensor = by_column(self._columns, batch.observation)["vector"]
            replayed = isinstance(batch, TransitionBatch)
            rows.append(vectors[:, -1] if replayed else vectors[:, :-1, -1].transpose(0, 1).flatten(0, 1))
        if self._of_returns:
            back = (
                batch.n_step_return if isinstance(batch, TransitionBatch) else discounted(batch.reward, batch.discount)
            )
            rows.append(back.view(-1, 1))
        self.left_out += self._moments.merge(torch.cat(rows, dim=1).double(), self.ranks)

    @torch.no_grad()
    def apply(self, networks: Iterable[nn.Module]) -> None:
        """Set the buffers of ``networks``: the one that learns and those that follow it. Until a batch has counted they stay as
        they are, that of returns until there was a reward, and where vectors have whole numbers always."""
        mean, deviation = self._moments.mean.float(), self._moments.deviation(LEAST_OF_OBSERVATIONS).float()
        counted, width = self._moments.count > 0, len(self._normalized)
        new: dict[str, tuple[Tensor, Tensor]] = {}
        if width:
            chosen = self._normalized & counted
            new["observation_mean"] = chosen, mean[:width]
            new["observation_scale"] = chosen, 1.0 / deviation[:width].clamp(min=LEAST_DEVIATION)
        if self._of_returns:
            of_returns = self._moments.deviation(LEAST_OF_RETURNS)[-1].float()
            new["return_scale"] = of_returns > LEAST_DEVIATION, of_returns
        for network in networks:
            for place, buffer in network.named_buffers():  # of parts that are networks themselves, too
                if (found := new.get(place.rpartition(".")[2])) is not None:
                    buffer.copy_(torch.where(*found, buffer))

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps: the accumulators themselves."""
        moments = self._moments
        return {"count": moments.count, "mean": moments.mean, "m2": moments.m2}

    def load(self, state: Mapping[str, Tensor]) -> bool:
        """Go on from what ``state`` gave; False where it was of other numbers, or of none, and counting begins anew."""
        own = self.state()
        fits = all(name in state and state[name].shape == tensor.shape for name, tensor in own.items())
        for name, tensor in own.items():
            tensor.copy_(state[name]) if fits else tensor.zero_()
        return fits

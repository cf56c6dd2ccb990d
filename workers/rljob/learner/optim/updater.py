"""The two kinds of updater: from sampled transitions, and from unrolls. What they share is in ``base_updater``."""

import copy
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from rljob.algorithms.base import AnyAlgorithm, TransitionAlgorithm, UnrollAlgorithm
from rljob.algorithms.batches import LossResult, TransitionBatch, UnrollBatch, moments
from rljob.algorithms.trunk import FrameNetwork
from rljob.api.parameters import ActorCriticParameterSet, TransitionParameterSet, UnrollParameterSet
from rljob.learner.optim.base_updater import Updater
from rljob.learner.optim.on_device import HalfWeightsCopy
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.observation import arrays_of, each


class TransitionUpdater(Updater[TransitionBatch]):
    """Learns from sampled transitions: one update a batch, against an older copy of the network, ``target``."""

    def __init__(
        self,
        algorithm: TransitionAlgorithm[Any, Any],
        params: TransitionParameterSet,
        online: FrameNetwork,
        device: torch.device,
        threads: DataParallelThreads | None = None,
    ) -> None:
        super().__init__(algorithm, params, online, device, threads)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self._computed_target = HalfWeightsCopy(self.target)
        self._tau, self._interval = params.target_update_tau, params.target_update_interval
        self._priorities = algorithm.priorities
        self._loss = algorithm.loss
        self._noise = algorithm.noise(params, online)

    def networks(self) -> dict[str, nn.Module]:
        return {"target": self.target, **super().networks()}

    def minibatches(self, batch: TransitionBatch) -> Iterator[TransitionBatch]:
        if self._noise and batch.noise is None:
            noise = torch.randn(len(batch.action), *self._noise, device=self.device)
            batch = batch._replace(noise=noise)
        yield batch

    def update(self, batch: TransitionBatch, steps: int) -> tuple[Tensor, Tensor]:
        """The one update of a batch: (priorities float32[B], ``figures`` float32[K]), on the device."""
        ((priorities, figures),) = self.updates_from(batch, steps)
        return priorities, figures

    def _loss_of(self, network: FrameNetwork, batch: TransitionBatch) -> LossResult:
        batch = batch._replace(next_observation=network.laid_out(batch.next_observation))  # both networks see them
        return self._loss(self.params, network, self._computed_target.module, batch)

    def _priorities_of(self, result: LossResult) -> Tensor:
        assert result.td_abs is not None, "a loss on transitions gives td_abs, for their new priorities"
        return self._priorities(result.td_abs)

    def _refresh_copies(self) -> None:
        super()._refresh_copies()
        self._computed_target.refresh()

    @torch.no_grad()
    def _follow(self) -> None:
        if self._tau > 0:
            torch._foreach_lerp_(list(self.target.parameters()), self._parameters, self._tau)
            self._computed_target.convert()
        super()._follow()

    @torch.no_grad()
    def _follow_at_intervals(self) -> None:
        if self._tau == 0 and self.updates % self._interval == 0:
            torch._foreach_copy_(list(self.target.parameters()), self._parameters)


class UnrollUpdater(Updater[UnrollBatch]):
    """Learns from unrolls: several updates a batch where the algorithm makes several minibatches of it."""

    def __init__(
        self,
        algorithm: UnrollAlgorithm[Any, Any],
        params: UnrollParameterSet | ActorCriticParameterSet,
        online: FrameNetwork,
        device: torch.device,
        threads: DataParallelThreads | None = None,
    ) -> None:
        super().__init__(algorithm, params, online, device, threads)
        self._minibatches, self._prepared = algorithm.minibatches, algorithm.prepared
        self._loss = algorithm.loss
        self._several_passes = algorithm.passes(params) > 1
        self._largest_divergence = algorithm.largest_divergence(params)

    def minibatches(self, batch: UnrollBatch) -> Iterator[UnrollBatch]:
        if self._several_passes:  # so that not every pass lays them out anew
            rows = arrays_of(batch.observation)[0].shape[:2]
            laid_out = self.online.laid_out(each(lambda of: of.flatten(0, 1), batch.observation))
            batch = batch._replace(observation=each(lambda of: of.view(*rows, *of.shape[1:]), laid_out))
        over_all = moments if self.ranks is None else self.ranks.moments
        for minibatch in self._minibatches(self.params, self.online, batch):
            yield self._prepared(self.params, minibatch, over_all)


AnyUpdater: TypeAlias = TransitionUpdater | UnrollUpdater


def make_updater(
    algorithm: AnyAlgorithm,
    params: Any,
    online: FrameNetwork,
    device: torch.device,
    threads: DataParallelThreads | None = None,
) -> AnyUpdater:
    """The updater for what the algorithm learns from."""
    if isinstance(algorithm, TransitionAlgorithm):
        return TransitionUpdater(algorithm, params, online, device, threads)
    assert isinstance(algorithm, UnrollAlgorithm), f"{algorithm!r} is of neither kind"
    return UnrollUpdater(algorithm, params, online, device, threads)


def trial_update(algorithm: AnyAlgorithm, params: Any, net: FrameNetwork, batch: Any) -> None:
    """An update of this job without its optimiser step, to be timed; leaves no gradient behind."""
    loss: Any = algorithm.loss  # type: ignore[attr-defined]
    networks = (net, net) if isinstance(algorithm, TransitionAlgorithm) else (net,)
    result = loss(params, *networks, batch)
    result.value.backward()
    net.zero_grad()

"""Learner updates: loss and gradient, a step of the optimiser, target network, evaluation average. Static shapes, no host sync.

Parameters, optimiser state, targets and losses are float32 whatever the trunk computes in. Nothing here waits for the device: an
update whose gradient is not finite is skipped on the device itself, a batch's divergence, where the learning rate follows it,
counts once it has arrived (``LateNumber``), and what the loop wants to know travels back late (``Readback``).

Which algorithm it is makes no difference here: a loss takes parameters, networks and a batch, and gives a ``LossResult``. The
work of an update is divided among threads by the batch (``split``) and by the result (``LossResult.joined``).
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rljob.algorithms.base import AnyAlgorithm, TransitionAlgorithm, UnrollAlgorithm
from rljob.algorithms.batches import MicroBatch, TransitionBatch, UnrollBatch
from rljob.algorithms.compute import let_round_to_tf32
from rljob.algorithms.loss_result import LossResult
from rljob.algorithms.parameters import LearnerParameters, TransitionParameters, UnrollParameters
from rljob.algorithms.trunk import FrameNetwork
from rljob.learner.optim.adaptive_learning_rate import AdaptiveLearningRate
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
from rljob.learner.optim.half_weights_copy import HalfWeightsCopy
from rljob.learner.optim.loss_scale import LossScale
from rljob.learner.optim.readback import LateNumber
from rljob.learner.optim.sharded_optimizer import ShardedOptimizer

Batch = TypeVar("Batch", TransitionBatch, UnrollBatch)


class Updater(ABC, Generic[Batch]):
    """What every updater is: the network that learns, its optimiser, and followers.

    ``online`` learns, ``evaluation`` is its moving average (or None where the job keeps none). All live on ``device``.
    ``updates`` counts the updates made. For one thread; with ``threads`` it computes in several, each with a micro-batch.
    How the network computes (see ``FrameNetwork.compute``) is settled before. In bf16 and fp16 the work is done on a copy stored
    so; in fp16 the loss is scaled (``LossScale``), and an update whose gradient overflows is skipped.
    """

    _loss: Callable[..., LossResult]

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        params: LearnerParameters,
        online: FrameNetwork,
        device: torch.device,
        threads: DataParallelThreads | None = None,
    ) -> None:
        self.params = params
        self.device = device
        self.online = online.to(device)
        self.evaluation = (
            copy.deepcopy(self.online).requires_grad_(False) if params.evaluation_weights_decay > 0 else None
        )
        self.updates = 0
        self.learning_rate = AdaptiveLearningRate(params, algorithm.target_divergence(params))
        self.loss_scale: LossScale | None = LossScale(device) if self.online.plan.arithmetic == "fp16" else None
        self.figures = _figures(algorithm, scaled=self.loss_scale is not None)
        """Names of the numbers that an update reports."""
        self._metrics = algorithm.metrics
        if device.type == "cuda":
            let_round_to_tf32(self.online.plan.arithmetic)
        self._divergence = LateNumber(device)
        self._computed = HalfWeightsCopy(self.online)
        self._threads = threads or DataParallelThreads()
        self._parameters: list[Tensor] = list(self.online.parameters())
        if any(parameter.dtype != torch.float32 for parameter in self._parameters):
            raise ValueError("the online network must be float32: an update rounded to bf16 would not move its weights")
        self.optimizer = ShardedOptimizer(params, self._parameters, self._threads)
        self._graphs_compiled: int | None = None
        self.compiled = False

    def compile(self) -> None:
        """Compile the loss and its gradient from now on. The first update then takes the time a compiler needs."""
        self._loss = torch.compile(self._loss, dynamic=False)
        self.compiled = True

    def forget_under_way(self) -> None:
        """The weights have been replaced: what batches before have yet to tell is not about these."""
        self._divergence.drain()

    @property
    def recompiles(self) -> int:
        """Graphs compiled after the first update. Shapes are static, so anything but 0 is a defect."""
        return _graphs() - self._graphs_compiled if self.compiled and self._graphs_compiled is not None else 0

    def overflowed(self, figures: NDArray[np.float32]) -> bool:
        """Whether ``figures`` are of an update that was skipped because its scaled gradient left fp16's range: the next ones are
        scaled less. Where nothing is scaled (any more), a gradient that is not finite is the loss's own."""
        if self.loss_scale is None:
            return False
        loss, norm, scale = figures[:3].tolist()
        return math.isfinite(loss) and not math.isfinite(norm) and scale > 1.0

    @abstractmethod
    def updates_from(self, batch: Batch, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Learn from one batch, in as many updates as the algorithm makes of it; each is done when it is asked for.

        ``steps``: agent steps of the run so far, for the learning rate. Yields (priorities float32[B], empty where there are
        none, and ``figures`` float32[K]), on the device.
        """

    def networks(self) -> dict[str, nn.Module]:
        """All networks by the name that a checkpoint keeps them under."""
        return {
            name: net for name, net in (("online", self.online), ("evaluation", self.evaluation)) if net is not None
        }

    def copy_online(self) -> None:
        """Make every follower equal to the online network (at the start of training)."""
        for follower in self.networks().values():
            if follower is not self.online:
                follower.load_state_dict(self.online.state_dict())

    def _learn(
        self, loss: Callable[[FrameNetwork, Batch], LossResult], batch: Batch, steps: int
    ) -> tuple[LossResult, Tensor]:
        """One update by ``loss(network, batch)``: its result and ``figures`` float32[K]."""
        network, parameters = self._computed.current(), self._computed.parameters
        scale = None if self.loss_scale is None else self.loss_scale.factor

        def scaled(value: Tensor) -> Tensor:
            return value if scale is None else value * scale

        def learn(micro: MicroBatch[Batch]) -> tuple[LossResult, Sequence[Tensor]]:
            # The cache of cast weights is one for all threads: a cast made by one without a gradient must not reach another.
            torch.set_autocast_cache_enabled(False)
            result = loss(network, micro.batch)
            return result, torch.autograd.grad(scaled(result.value * result.weight(micro.share)), parameters)

        gradients: Sequence[Sequence[Tensor]]
        result: LossResult
        if self._threads.count == 1:
            result = loss(network, batch)
            gradients = [torch.autograd.grad(scaled(result.value), parameters)]
        else:
            micro_batches: Sequence[MicroBatch[Batch]] = batch.split(self._threads.count)
            learned = self._threads.map(learn, micro_batches)
            results, gradients = [each for each, _ in learned], [each for _, each in learned]
            result = LossResult.joined(results, [micro.share for micro in micro_batches])
        norm = self.optimizer.step(gradients, self.learning_rate.at(steps), self._computed.update, scale)
        self._computed.mark_updated()
        if self.loss_scale is not None:
            self.loss_scale.follow(norm)
        self.updates += 1
        self._follow()
        if self.compiled and self._graphs_compiled is None:
            self._graphs_compiled = _graphs()
        figures = [result.value.detach(), norm]
        if scale is not None:
            figures.append(scale)
        figures.extend(result.metrics[name] for name in self._metrics)
        return result, torch.stack(figures)

    def _adapt(self, divergence: Tensor | None, updates: int) -> None:
        """Let the learning rate follow the divergence, added up over the ``updates`` of a batch, where the job wants that."""
        if divergence is not None and self.learning_rate.target > 0.0:
            for arrived in self._divergence.push(divergence / updates):
                self.learning_rate.observe(arrived)

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the followers of the online network after an update."""
        if self.evaluation is not None:
            share = 1.0 - self.params.evaluation_weights_decay
            torch._foreach_lerp_(_tensors(self.evaluation), self._parameters, share)


class TransitionUpdater(Updater[TransitionBatch]):
    """Learns from sampled transitions: one update a batch, against an older copy of the network, ``target``."""

    def __init__(
        self,
        algorithm: TransitionAlgorithm[Any, Any],
        params: TransitionParameters,
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

    def networks(self) -> dict[str, nn.Module]:
        return {"target": self.target, **super().networks()}

    def updates_from(self, batch: TransitionBatch, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        yield self.update(batch, steps)

    def update(self, batch: TransitionBatch, steps: int) -> tuple[Tensor, Tensor]:
        """The one update of a batch: (priorities float32[B], ``figures`` float32[K]), on the device."""
        target = self._computed_target.current()

        def loss(online: FrameNetwork, batch: TransitionBatch) -> LossResult:
            batch = batch._replace(next_observation=online.laid_out(batch.next_observation))  # both networks see them
            return self._loss(self.params, online, target, batch)

        result, figures = self._learn(loss, batch, steps)
        assert result.td_abs is not None, "a loss on transitions gives td_abs, of which their new priorities are made"
        self._adapt(result.divergence, 1)
        return self._priorities(result.td_abs), figures

    @torch.no_grad()
    def _follow(self) -> None:
        if self._tau > 0:
            torch._foreach_lerp_(_tensors(self.target), self._parameters, self._tau)
        elif self.updates % self._interval == 0:
            torch._foreach_copy_(_tensors(self.target), self._parameters)
        super()._follow()


class UnrollUpdater(Updater[UnrollBatch]):
    """Learns from unrolls: several updates a batch where the algorithm makes several minibatches of it."""

    def __init__(
        self,
        algorithm: UnrollAlgorithm[Any, Any],
        params: UnrollParameters,
        online: FrameNetwork,
        device: torch.device,
        threads: DataParallelThreads | None = None,
    ) -> None:
        super().__init__(algorithm, params, online, device, threads)
        self._minibatches = algorithm.minibatches
        self._loss = algorithm.loss
        self._several_passes = algorithm.passes(params) > 1
        self._no_priorities = torch.empty(0, device=device)

    def updates_from(self, batch: UnrollBatch, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        if self._several_passes:  # so that not every pass lays them out anew
            frames = self.online.laid_out(batch.observation.flatten(0, 1))
            batch = batch._replace(observation=frames.view(*batch.observation.shape[:2], *frames.shape[1:]))
        divergence, updates = torch.zeros((), device=self.device), 0
        for minibatch in self._minibatches(self.params, batch):
            result, figures = self._learn(lambda net, micro: self._loss(self.params, net, micro), minibatch, steps)
            updates += 1
            if result.divergence is not None:
                divergence += result.divergence
            yield self._no_priorities, figures
        self._adapt(divergence, updates)


AnyUpdater: TypeAlias = TransitionUpdater | UnrollUpdater


def make_updater(
    algorithm: AnyAlgorithm,
    params: Any,
    online: FrameNetwork,
    device: torch.device,
    threads: DataParallelThreads | None = None,
) -> AnyUpdater:
    """The updater for what the algorithm learns from. Raises TypeError for an object that is neither kind of algorithm."""
    if isinstance(algorithm, TransitionAlgorithm):
        return TransitionUpdater(algorithm, params, online, device, threads)
    if isinstance(algorithm, UnrollAlgorithm):
        return UnrollUpdater(algorithm, params, online, device, threads)
    raise _no_algorithm(algorithm)


def trial_update(algorithm: AnyAlgorithm, params: Any, net: FrameNetwork, batch: Any) -> None:
    """An update of this job without its optimiser step, to be timed; leaves no gradient behind."""
    if isinstance(algorithm, TransitionAlgorithm):
        result = algorithm.loss(params, net, net, batch)
    elif isinstance(algorithm, UnrollAlgorithm):
        result = algorithm.loss(params, net, batch)
    else:
        raise _no_algorithm(algorithm)
    result.value.backward()  # type: ignore[no-untyped-call]
    net.zero_grad()


def _figures(algorithm: AnyAlgorithm, *, scaled: bool) -> tuple[str, ...]:
    return ("loss", "gradient_norm", *(["loss_scale"] if scaled else []), *algorithm.metrics)


def _no_algorithm(given: object) -> TypeError:
    return TypeError(f"{given!r} is neither a TransitionAlgorithm nor an UnrollAlgorithm (rljob.algorithms.base)")


def _tensors(module: nn.Module) -> list[Tensor]:
    return list(module.parameters())


def _graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])

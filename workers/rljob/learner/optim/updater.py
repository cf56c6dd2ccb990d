"""Learner updates: loss and gradient, a step of the optimiser, target network, evaluation average. Static shapes, no host sync.

Parameters, optimiser state, targets and losses are float32 whatever the trunk computes in. Nothing here reads a number back
from the device, but for a batch's divergence where the step size follows it: an update whose gradient is not finite is skipped
on the device itself where the optimiser can do that, and what the loop wants to know travels back one update late (``Readback``).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rljob.algorithms import Algorithm, Experience
from rljob.algorithms.piece import Piece
from rljob.algorithms.trunk import FrameNetwork
from rljob.learner.optim.adaptive_learning_rate import AdaptiveLearningRate
from rljob.learner.optim.bf16_weights_copy import Bf16WeightsCopy
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
from rljob.learner.optim.sharded_optimizer import ShardedOptimizer


class Updater(ABC):
    """What every updater is: the network that learns, its optimiser, and followers.

    ``online`` learns, ``evaluation`` is its moving average (or None where the job keeps none). All live on ``device``.
    ``updates`` counts the updates made. For one thread; with ``threads`` it computes in several, each with a piece of the update.
    How the network computes (see ``FrameNetwork.compute``) is settled before; in bf16 the work is done on a copy, stored in bf16.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        params: Any,
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
        self.learning_rate = AdaptiveLearningRate(params)
        self._computed = Bf16WeightsCopy(self.online)
        self._threads = threads or DataParallelThreads()
        self._parameters: list[Tensor] = list(self.online.parameters())
        if any(parameter.dtype != torch.float32 for parameter in self._parameters):
            raise ValueError("the online network must be float32: an update rounded to bf16 would not move its weights")
        self.optimizer = ShardedOptimizer(params, self._parameters, self._threads)
        self._algorithm = algorithm
        self._loss: Callable[..., Any] = algorithm.loss
        self._graphs_compiled: int | None = None
        self.compiled = False

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of the numbers that an update reports; the loss and the gradient's norm come first."""
        return self._algorithm.figures

    def compile(self) -> None:
        """Compile the loss and its gradient from now on. The first update then takes the time a compiler needs."""
        self._loss = torch.compile(self._algorithm.loss, dynamic=False)
        self.compiled = True

    @property
    def recompiles(self) -> int:
        """Graphs compiled after the first update. Shapes are static, so anything but 0 is a defect."""
        return _graphs() - self._graphs_compiled if self.compiled and self._graphs_compiled is not None else 0

    @abstractmethod
    def updates_from(self, batch: Any, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
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

    def evaluation_network(self) -> FrameNetwork:
        """The network whose policy is evaluated."""
        return self.evaluation or self.online

    def _learn(self, loss: Callable[[FrameNetwork, Any], Any], part: Any, steps: int) -> tuple[Any, Tensor]:
        """One update by ``loss(network, part)``: what that is, and the gradient's norm before clipping."""
        network, parameters = self._computed.current(), self._computed.parameters

        def learn(piece: Piece) -> tuple[Any, Sequence[Tensor]]:
            # The cache of cast weights is one for all threads: a cast made by one without a gradient must not reach another.
            torch.set_autocast_cache_enabled(False)
            result = loss(network, piece.part)
            return result, torch.autograd.grad(result.value * piece.weight, parameters)

        gradients: Sequence[Sequence[Tensor]]
        if self._threads.count == 1:
            result = loss(network, part)
            gradients = [torch.autograd.grad(result.value, parameters)]
        else:
            pieces = self._algorithm.pieces(part, self._threads.count, self.params)
            results, gradients = zip(*self._threads.map(learn, pieces), strict=True)
            result = self._algorithm.joined(results, pieces)
        norm = self.optimizer.step(gradients, self.learning_rate.at(steps), self._computed.update)
        self._computed.mark_updated()
        self.updates += 1
        return result, norm

    @torch.no_grad()
    def _average(self) -> None:
        if self.evaluation is not None:
            share = 1.0 - self.params.evaluation_weights_decay
            torch._foreach_lerp_(_tensors(self.evaluation), self._parameters, share)

    def _note_compiled(self) -> None:
        if self.compiled and self._graphs_compiled is None:
            self._graphs_compiled = _graphs()


class TransitionUpdater(Updater):
    """Learns from sampled transitions: one update a batch, against a target network. ``target`` judges."""

    def __init__(
        self,
        algorithm: Algorithm,
        params: Any,
        online: FrameNetwork,
        device: torch.device,
        threads: DataParallelThreads | None = None,
    ) -> None:
        super().__init__(algorithm, params, online, device, threads)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self._computed_target = Bf16WeightsCopy(self.target)
        assert algorithm.priorities is not None, f"{algorithm.name} does not learn from transitions"
        self._priorities = algorithm.priorities

    def networks(self) -> dict[str, nn.Module]:
        return {"target": self.target, **super().networks()}

    def updates_from(self, batch: Any, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        yield self.update(batch, steps)

    def update(self, batch: Any, steps: int) -> tuple[Tensor, Tensor]:
        """The one update of a batch: (priorities float32[B], figures float32[3]), on the device."""
        target = self._computed_target.current()

        def loss(online: FrameNetwork, batch: Any) -> Any:
            batch = batch._replace(next_observation=online.laid_out(batch.next_observation))  # both networks see them
            return self._loss(online, target, batch, double=self.params.double, kind=self.params.loss)

        loss_of_batch, norm = self._learn(loss, batch, steps)
        self._follow()
        self._note_compiled()
        figures = torch.stack([loss_of_batch.value.detach(), norm, loss_of_batch.metrics["q_taken"]])
        return self._priorities(loss_of_batch.td_abs), figures

    @torch.no_grad()
    def _follow(self) -> None:
        params = self.params
        if params.target_update_tau > 0:
            torch._foreach_lerp_(_tensors(self.target), self._parameters, params.target_update_tau)
        elif self.updates % params.target_update_interval == 0:
            torch._foreach_copy_(_tensors(self.target), self._parameters)
        self._average()


class UnrollUpdater(Updater):
    """Learns from unrolls: several updates a batch where the job asks for epochs and minibatches."""

    def __init__(
        self,
        algorithm: Algorithm,
        params: Any,
        online: FrameNetwork,
        device: torch.device,
        threads: DataParallelThreads | None = None,
    ) -> None:
        super().__init__(algorithm, params, online, device, threads)
        assert algorithm.parts is not None, f"{algorithm.name} does not learn from unrolls"
        self._parts = algorithm.parts
        self._policy_kl = algorithm.figures[2:].index("policy_kl")  # among a loss's metrics
        self._no_priorities = torch.empty(0, device=device)

    def updates_from(self, batch: Any, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        if self.params.epochs > 1:  # so that not every pass lays them out anew
            frames = self.online.laid_out(batch.observation.flatten(0, 1))
            batch = batch._replace(observation=frames.view(*batch.observation.shape[:2], *frames.shape[1:]))
        divergence = torch.zeros((), device=self.device)
        for part in self._parts(batch, self.params):
            loss, norm = self._learn(lambda network, piece: self._loss(network, piece, self.params), part, steps)
            self._average()
            self._note_compiled()
            divergence += loss.metrics[self._policy_kl]
            yield self._no_priorities, torch.stack([loss.value.detach(), norm, *loss.metrics])
        if self.learning_rate.target > 0.0:  # the one number that is waited for, once a batch
            self.learning_rate.observe(float(divergence) / self.params.updates_per_batch)


def make_updater(
    algorithm: Algorithm,
    params: Any,
    online: FrameNetwork,
    device: torch.device,
    threads: DataParallelThreads | None = None,
) -> Updater:
    """The updater for what the algorithm learns from."""
    kind = UnrollUpdater if algorithm.experience is Experience.UNROLLS else TransitionUpdater
    return kind(algorithm, params, online, device, threads)


def _tensors(module: nn.Module) -> list[Tensor]:
    return list(module.parameters())


def _graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])

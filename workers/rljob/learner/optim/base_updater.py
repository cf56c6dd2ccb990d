"""Learner updates: loss and gradient, a step of the optimiser, target network, evaluation average. Static shapes, no host sync.

Parameters, optimiser state, targets and losses are float32 whatever the trunk computes in. Nothing here waits for the device: an
update whose gradient is not finite is skipped on the device itself, a batch's divergence, where the learning rate follows it,
counts once it has arrived (``LateNumber``), and what the loop wants to know travels back late (``Readback``).

Which algorithm it is makes no difference here: a loss takes parameters, networks and a batch, and gives a ``LossResult``. The
work of an update is divided among threads by the batch (``split``) and by the result (``LossResult.joined``).

What the host decides for an update stands in ``learn``, and what the device does in ``compute``: only that can be a CUDA graph.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rljob.algorithms.base import AnyAlgorithm
from rljob.algorithms.batches import LossResult, MicroBatch, TransitionBatch, UnrollBatch
from rljob.algorithms.compute import let_round_to_tf32
from rljob.algorithms.trunk import FrameNetwork
from rljob.api.live import live_names
from rljob.api.parameters import LearnerParameterSet
from rljob.learner.normalizer import Normalizer
from rljob.learner.optim.on_device import CapturedUpdate, HalfWeightsCopy, LateNumber, Learned, LossScale
from rljob.learner.optim.sharded_optimizer import DataParallelThreads, ShardedOptimizer
from rljob.learner.ranks import Ranks, over_ranks, rows_of

LARGEST_CHANGE = 1.25
"""By how much one batch may change the scale of the schedule: a batch's divergence is a noisy figure."""

LEAST_SCALE = 0.05
"""The scale never falls below this: a divergence that comes from old unrolls cannot be brought down by learning less."""


def scheduled_learning_rate(params: LearnerParameterSet, steps: int) -> float:
    """The learning rate after ``steps`` agent steps of all environments: linear from the first value to the final one."""
    if params.learning_rate_decay_steps == 0:
        return float(params.learning_rate)
    done = min(1.0, steps / params.learning_rate_decay_steps)
    return float(params.learning_rate + (params.learning_rate_final - params.learning_rate) * done)


class AdaptiveLearningRate:
    """The schedule times ``scale`` (0.05..1), which follows the divergence that batches end up with.

    To second order the divergence grows with the square of the learning rate (as two Gaussians' does with their distance), so
    the scale is multiplied by the root of what it should be over what it was. ``target`` (in nats) 0 leaves the scale at 1.
    """

    def __init__(self, params: LearnerParameterSet, target: float = 0.0) -> None:
        self.params, self.target = params, target
        self.scale = 1.0

    def at(self, steps: int) -> float:
        """The learning rate after ``steps`` agent steps of the run."""
        return scheduled_learning_rate(self.params, steps) * self.scale

    def observe(self, divergence: float) -> None:
        """A batch has ended, whose updates saw this mean divergence from the policy that acted, in nats."""
        if self.target == 0.0 or math.isnan(divergence):
            return
        wanted = math.sqrt(self.target / divergence) if divergence > 0.0 else LARGEST_CHANGE
        change = min(max(wanted, 1.0 / LARGEST_CHANGE), LARGEST_CHANGE)
        self.scale = min(max(self.scale * change, LEAST_SCALE), 1.0)


Batch = TypeVar("Batch", TransitionBatch, UnrollBatch)


class Updater(ABC, Generic[Batch]):
    """What every updater is: the network that learns, its optimiser, and followers.

    ``online`` learns, ``evaluation`` is the moving average of what acts of it (or None where the job keeps none). All live on
    ``device``.
    ``updates`` counts the updates made. For one thread; with ``threads`` it computes in several, each with a micro-batch.
    How the network computes (see ``FrameNetwork.compute``) is settled before. In bf16 and fp16 the work is done on a copy stored
    so; in fp16 the loss is scaled (``LossScale``), and an update whose gradient overflows is skipped.
    """

    _loss: Callable[..., LossResult]

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        params: Any,
        online: FrameNetwork,
        device: torch.device,
        threads: DataParallelThreads | None = None,
    ) -> None:
        self._algorithm, self.device = algorithm, device
        numbers = {name: torch.as_tensor(getattr(params, name)).to(device, copy=True) for name in live_losses(params)}
        self.params: Any = params.model_copy(update=numbers)
        """As losses see them: live ones are numbers on the device, float32, which a graph reads anew each time."""
        self.online = online.to(device)
        self.acting: nn.Module = self.online.get_submodule(algorithm.acting)
        """What of ``online`` acts: all of it, or the part called ``acting_name``."""
        self.acting_name = algorithm.acting
        self.evaluation = (
            copy.deepcopy(self.acting).requires_grad_(False) if params.evaluation_weights_decay > 0 else None
        )
        self.normalizer = Normalizer.of(self.online)
        """The statistics that the networks normalise by, or None. The loop has it count batches and set the buffers."""
        self.updates = 0
        self.learning_rate = AdaptiveLearningRate(params, algorithm.target_divergence(params))
        self.loss_scale: LossScale | None = LossScale(device) if self.online.plan.arithmetic == "fp16" else None
        self._metrics = algorithm.metrics_of(self.online)
        self.figures = (
            "loss",
            "gradient_norm",
            *(["loss_scale"] if self.loss_scale is not None else []),
            *self._metrics,
        )
        """Names of the numbers that an update reports."""
        self._largest_divergence = 0.0
        if device.type == "cuda":
            let_round_to_tf32(self.online.plan.arithmetic)
        self._divergence, self._early_end = LateNumber(device), LateNumber(device)
        self._computed = HalfWeightsCopy(self.online)
        self._threads = threads or DataParallelThreads()
        self._parameters: list[Tensor] = list(self.online.parameters())
        if any(parameter.dtype not in (torch.float32, torch.float64) for parameter in self._parameters):
            raise ValueError("the online network must be float32: an update rounded to bf16 would not move its weights")
        groups = algorithm.groups(params, self.online)
        self.optimizer = ShardedOptimizer(params, self._parameters, self._threads, groups)
        self._graphs_compiled: int | None = None
        self.compiled = False
        self.captured: CapturedUpdate[Batch] | None = None
        """Where set: updates from minibatches that fit it are replayed. See ``update_trial``."""
        self.replayed = False
        """Whether the last update was."""
        self._no_priorities = torch.empty(0, device=device)
        self.ranks: Ranks | None = None
        """Where set: an update is made of all ranks' minibatches."""

    def join(self, ranks: Ranks) -> None:
        """Learn with the other ranks from now on, which start from the same weights."""
        self.ranks = ranks
        if self.normalizer is not None:
            self.normalizer.ranks = ranks
        # What follows from a divergence has to follow at the same update for all, whenever a device tells it.
        self._divergence, self._early_end = LateNumber(self.device, waits=True), LateNumber(self.device, waits=True)

    def follow(self, params: Any) -> None:
        """Learn with these parameters from now on. They differ from those of before in live fields alone."""
        for name in live_losses(params):
            getattr(self.params, name).fill_(getattr(params, name))
        self.learning_rate.params = params
        self.optimizer.follow(params, self._algorithm.groups(params, self.online))

    def compile(self) -> None:
        """Compile the loss and its gradient from now on. The first update then takes the time a compiler needs."""
        self._loss = torch.compile(self._loss, dynamic=False)
        self.compiled = True

    def differentiated(self, minibatch: Batch, scale: Tensor | None = None) -> tuple[LossResult, Sequence[Tensor]]:
        """The loss of a minibatch, and its gradient, times ``scale``, by the parameters that compute."""
        result = self._loss_of(self._computed.module, minibatch)
        value = result.value if scale is None else result.value * scale
        return result, torch.autograd.grad(value, self._computed.parameters)

    def forget_under_way(self) -> None:
        """The weights have been replaced: figures of earlier batches that are still to arrive are not about these."""
        self._divergence.drain()
        self._early_end.drain()

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

    def updates_from(self, batch: Batch, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Learn from one batch, in as many updates as the algorithm makes of it; each is done when it is asked for.

        ``steps``: agent steps of the run so far, for the learning rate and the loss's schedules. Yields (priorities float32[B],
        empty where there are none, and ``figures`` float32[K]), on the device; the next update may overwrite them.
        """
        divergences: list[Tensor] = []
        self._early_end.drain()  # what is still to arrive is about the batch before
        for minibatch in self.minibatches(batch):
            learned = self.learn(minibatch, steps)
            if learned.divergence is not None and self.learning_rate.target > 0.0:
                divergences.append(learned.divergence.clone())
            yield learned.priorities, learned.figures
            if learned.divergence is not None and self._has_diverged(learned.divergence):
                break
        if divergences:
            self._adapt(torch.stack(divergences).mean())

    @abstractmethod
    def minibatches(self, batch: Batch) -> Iterator[Batch]:
        """What is learned from a batch, update for update."""

    def learn(self, minibatch: Batch, steps: int) -> Learned:
        """One update, which the learning rate does not follow."""
        rate = self.learning_rate.at(steps)
        minibatch = minibatch._replace(**counts(steps, self.updates + 1, self.device))
        self._refresh_copies()
        self.replayed = self.captured is not None and self.captured.fits(minibatch)
        learned = (self.captured if self.captured is not None and self.replayed else self.compute)(minibatch, rate)
        self.updates += 1
        self._follow_at_intervals()
        if self.compiled and self._graphs_compiled is None:
            self._graphs_compiled = _graphs()
        return learned

    def networks(self) -> dict[str, nn.Module]:
        """All networks by the name that a checkpoint keeps them under."""
        return {
            name: net for name, net in (("online", self.online), ("evaluation", self.evaluation)) if net is not None
        }

    def copy_online(self) -> None:
        """Make every follower equal to the online network (at the start of training)."""
        for follower in self.networks().values():
            if follower is not self.online:
                followed = self.acting if follower is self.evaluation else self.online
                follower.load_state_dict(followed.state_dict())

    def compute(self, minibatch: Batch, rate: float | Tensor) -> Learned:
        """What the device does in an update. It depends on tensors alone, and on nothing that the host looks up or counts.

        ``rate``: the learning rate; as a number on the device it is read when the update happens.
        ``_refresh_copies`` has been called since anything else changed the weights.
        """
        network, parameters = self._computed.module, self._computed.parameters
        scale = None if self.loss_scale is None else self.loss_scale.factor

        def scaled(value: Tensor) -> Tensor:
            return value if scale is None else value * scale

        def learn(micro: MicroBatch[Batch]) -> tuple[LossResult, Sequence[Tensor]]:
            # The cache of cast weights is one for all threads: a cast made by one without a gradient must not reach another.
            torch.set_autocast_cache_enabled(False)
            result = self._loss_of(network, micro.batch)
            return result, torch.autograd.grad(scaled(result.value * result.weight(micro.share)), parameters)

        gradients: Sequence[Sequence[Tensor]]
        result: LossResult
        if self._threads.count == 1:
            result, gradient = self.differentiated(minibatch, scale)
            gradients = [gradient]
        else:
            micro_batches: Sequence[MicroBatch[Batch]] = minibatch.split(self._threads.count)
            learned = self._threads.map(learn, micro_batches)
            results, gradients = [each for each, _ in learned], [each for _, each in learned]
            result = LossResult.joined(results, [micro.share for micro in micro_batches])
        if self.ranks is not None:
            result, gradient = over_ranks(self.ranks, result, gradients, self._parameters, rows_of(minibatch))
            gradients = [gradient]
        norm = self.optimizer.step(
            gradients, rate, self._computed.update, scale, minibatch.update, result.value.detach()
        )
        self._computed.mark_updated()
        self._follow()
        figures = [result.value.detach(), norm]
        if scale is not None:
            figures.append(scale)
        figures.extend(result.metrics[name] for name in self._metrics)
        reported = torch.stack(figures)
        if self.loss_scale is not None:
            self.loss_scale.follow(norm)
        return Learned(self._priorities_of(result), reported, result.divergence)

    def _loss_of(self, network: FrameNetwork, batch: Batch) -> LossResult:
        """The loss of ``network``, which is ``online`` or stands in for it."""
        return self._loss(self.params, network, batch)

    def _priorities_of(self, result: LossResult) -> Tensor:
        """New priorities float32 [B], or an empty tensor."""
        return self._no_priorities

    def _has_diverged(self, divergence: Tensor) -> bool:
        """Whether the rest of a batch is left out: an update, as far as such numbers have arrived, diverged too far."""
        limit = self._largest_divergence
        return limit > 0.0 and any(arrived > limit for arrived in self._early_end.push(divergence))

    def _adapt(self, divergence: Tensor) -> None:
        """Let the learning rate follow the mean divergence over the updates of a batch."""
        for arrived in self._divergence.push(divergence):
            self.learning_rate.observe(arrived)

    def _refresh_copies(self) -> None:
        """Convert the 16-bit copies anew where their network was changed by anything but an update."""
        self._computed.refresh()

    @torch.no_grad()
    def _follow(self) -> None:
        """Move those that follow the online network at every update."""
        if self.evaluation is not None:
            share = 1.0 - self.params.evaluation_weights_decay
            torch._foreach_lerp_(list(self.evaluation.parameters()), list(self.acting.parameters()), share)

    def _follow_at_intervals(self) -> None:
        """Move the followers that change at some updates, by their number; there are none unless this is overridden."""


def live_losses(params: Any) -> frozenset[str]:
    """Names of the live parameters that losses read; the loops read the others on the host."""
    return live_names(type(params)) - LearnerParameterSet.model_fields.keys()


def counts(steps: int, update: int, device: torch.device) -> dict[str, Tensor]:
    """What a minibatch says of the run: agent steps so far, and the number of the update."""
    return {"steps": torch.full((), float(steps), device=device), "update": torch.full((), update, device=device)}


def _graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])

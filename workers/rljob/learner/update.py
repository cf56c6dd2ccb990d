"""One learner update: loss, gradient, clipped optimiser step, target network, evaluation average. Static shapes, no host sync.

Parameters, optimiser state, targets and losses are float32 whatever the trunk computes in. Nothing here reads a number back
from the device: an update whose gradient is not finite is skipped on the device itself where the optimiser can do that, and
what the loop wants to know travels back one update late (``Readback``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rljob.algorithms import Algorithm
from rljob.algorithms.apex_dqn import Batch, Loss
from rljob.api import ApeXDQNParameters
from rljob.learner.shares import Shares


def learning_rate(params: ApeXDQNParameters, steps: int) -> float:
    """The step size after ``steps`` agent steps of all environments: linear from the first value to the final one."""
    if params.learning_rate_decay_steps == 0:
        return params.learning_rate
    done = min(1.0, steps / params.learning_rate_decay_steps)
    return params.learning_rate + (params.learning_rate_final - params.learning_rate) * done


class Updater:
    """The networks and the optimiser of a learner, and the update that changes them.

    ``online`` learns, ``target`` judges, ``evaluation`` is the moving average of ``online`` (or None where the job keeps
    none). All live on ``device``. ``updates`` counts the updates made. Used by one thread; with ``shares`` it computes in
    several, each with a share of the batch.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        params: ApeXDQNParameters,
        online: nn.Module,
        device: torch.device,
        shares: Shares | None = None,
    ) -> None:
        self.params = params
        self.device = device
        self.online = online.to(device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.evaluation = copy.deepcopy(self.target) if params.evaluation_weights_decay > 0 else None
        self.updates = 0
        self._parameters: list[Tensor] = list(self.online.parameters())
        if any(parameter.dtype != torch.float32 for parameter in self._parameters):
            raise ValueError("the online network must be float32: an update rounded to bf16 would not move its weights")
        self.optimizer = _optimizer(params, self._parameters)
        self._skips_on_device = params.optimizer == "Adam"
        self._algorithm = algorithm
        self._loss: Callable[..., Loss] = algorithm.loss
        self._shares = shares
        self._graphs_compiled: int | None = None
        self.compiled = False

    def compile(self) -> None:
        """Compile the loss and its gradient from now on. The first update then takes the time a compiler needs."""
        self._loss = torch.compile(self._algorithm.loss, dynamic=False)
        self.compiled = True

    @property
    def recompiles(self) -> int:
        """Graphs compiled after the first update. Shapes are static, so anything but 0 is a defect."""
        return _graphs() - self._graphs_compiled if self.compiled and self._graphs_compiled is not None else 0

    def update(self, batch: Batch, steps: int) -> tuple[Tensor, Tensor]:
        """Learn from one batch. ``steps``: agent steps of the run so far, for the learning rate.

        Returns (priorities float32[B], figures float32[3] = loss, gradient norm, mean Q of the actions taken), on the device.
        """
        params = self.params
        loss = self._gradient(batch)
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, params.gradient_clip_norm or float("inf"))
        self._step(norm, learning_rate(params, steps))
        self.updates += 1
        self._follow()
        if self.compiled and self._graphs_compiled is None:
            self._graphs_compiled = _graphs()
        figures = torch.stack([loss.value.detach(), norm, loss.metrics["q_taken"]])
        return self._algorithm.priorities(loss.td_abs), figures

    def copy_online(self) -> None:
        """Make the target and evaluation networks equal to the online one (at the start of training)."""
        for follower in filter(None, (self.target, self.evaluation)):
            follower.load_state_dict(self.online.state_dict())

    def judged(self) -> nn.Module:
        """The network whose policy is evaluated."""
        return self.evaluation or self.online

    def _gradient(self, batch: Batch) -> Loss:
        """The loss of a batch, with its gradient set."""

        def loss(batch: Batch) -> Loss:
            return self._loss(self.online, self.target, batch, double=self.params.double, kind=self.params.loss)

        if self._shares is not None:
            return self._shares.gradient(loss, batch, self._parameters)
        result = loss(batch)
        self.optimizer.zero_grad(set_to_none=True)
        result.value.backward()  # type: ignore[no-untyped-call]
        return result

    def _step(self, norm: Tensor, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self._skips_on_device:
            self.optimizer.found_inf = (~torch.isfinite(norm)).float()  # type: ignore[attr-defined]
            self.optimizer.step()
        elif torch.isfinite(norm):
            self.optimizer.step()

    @torch.no_grad()
    def _follow(self) -> None:
        params = self.params
        if params.target_update_tau > 0:
            torch._foreach_lerp_(_tensors(self.target), self._parameters, params.target_update_tau)
        elif self.updates % params.target_update_interval == 0:
            torch._foreach_copy_(_tensors(self.target), self._parameters)
        if self.evaluation is not None:
            share = 1.0 - params.evaluation_weights_decay
            torch._foreach_lerp_(_tensors(self.evaluation), self._parameters, share)


class Readback:
    """Brings what an update computed to the host without making it wait.

    On a CPU ``push`` returns the numbers at once. On CUDA it starts a copy into pinned memory and returns those of the update
    before, whose copy has finished by then.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._waiting: tuple[Any, Tensor, Any] | None = None

    def push(
        self, item: Any, priorities: Tensor, figures: Tensor
    ) -> tuple[Any, NDArray[np.float32], NDArray[np.float32]] | None:
        """``item`` comes back together with its numbers: (item, priorities float32[B], figures float32[3])."""
        if not self._cuda:
            return item, priorities.numpy(), figures.numpy()
        host = torch.empty(len(priorities) + len(figures), pin_memory=True)
        host.copy_(torch.cat([priorities, figures]), non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        before, self._waiting = self._waiting, (item, host, event)
        return None if before is None else _arrived(*before)

    def drain(self) -> None:
        """Forget what is under way (its batches belong to weights that have been replaced)."""
        self._waiting = None


def _arrived(item: Any, host: Tensor, event: Any) -> tuple[Any, NDArray[np.float32], NDArray[np.float32]]:
    event.synchronize()
    numbers = host.numpy()
    return item, numbers[:-3], numbers[-3:]


def _optimizer(params: ApeXDQNParameters, parameters: list[Tensor]) -> torch.optim.Optimizer:
    if params.optimizer == "Adam":  # fused: one pass over all parameters, four times faster than a loop on a CPU
        return torch.optim.Adam(parameters, lr=params.learning_rate, eps=params.adam_epsilon, fused=True)
    return torch.optim.RMSprop(parameters, lr=params.learning_rate, alpha=params.rmsprop_decay, eps=params.adam_epsilon)


def _tensors(module: nn.Module) -> list[Tensor]:
    return list(module.parameters())


def _graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])

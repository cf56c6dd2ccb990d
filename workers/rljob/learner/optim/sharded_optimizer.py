"""The work of one update on several cores of a CPU: each thread does an equal share of it, of the batch or of all numbers.
The optimiser's step, too: add up the gradients of the micro-batches, clip, move the weights; each thread its shard.

Torch's own threads share out every single operation and meet after each, some two hundred times an update, spinning until the
last arrives. Beside actors and a replay service on the same cores, one that is not running at that moment holds up all
others each time. Threads with a share each meet three times an update, and sleep until then.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from rljob.algorithms.base import ParameterGroup
from rljob.algorithms.optimizer import Adam, Optimizer, RMSProp
from rljob.api.parameters import LearnerParameterSet

Item = TypeVar("Item")
Result = TypeVar("Result")


class DataParallelThreads:
    """``count`` threads for the shares of an update, the caller's among them.

    With more than one, torch itself computes in one thread in this process from then on.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count - 1, thread_name_prefix="share") if count > 1 else None
        if count > 1:
            torch.set_num_threads(1)

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """``work`` of each item, ``count`` at the same time; the results in their order. Raises what it raises."""
        if self._pool is None:
            return [work(item) for item in items]
        first, *rest = items
        others = [self._pool.submit(work, item) for item in rest]
        return [work(first), *(other.result() for other in others)]


@dataclass(frozen=True, slots=True)
class ParameterSlice:
    """Numbers ``start`` to ``stop`` (in their order in memory) of the ``index``-th of some tensors."""

    index: int
    start: int
    stop: int

    def view(self, tensor: Tensor) -> Tensor:
        """A view [stop - start] of these numbers, without a gradient. The tensor must be dense: each number once, no gaps."""
        plain = tensor.detach()
        return plain.as_strided((self.stop - self.start,), (1,), plain.storage_offset() + self.start)

    def select(self, tensors: Sequence[Tensor]) -> Tensor:
        """The same view of the tensor that this is a slice of."""
        return self.view(tensors[self.index])


def shard_evenly(sizes: Sequence[int], count: int) -> list[list[ParameterSlice]]:
    """What each of ``count`` threads works on, of tensors with so many numbers: shards of about equal length, none empty."""
    total = sum(sizes)
    edges = [total * shard // count for shard in range(count + 1)]
    shards: list[list[ParameterSlice]] = [[] for _ in range(count)]
    before = 0
    for index, size in enumerate(sizes):
        for shard, start, stop in zip(shards, edges, edges[1:], strict=False):
            first, last = max(start - before, 0), min(stop - before, size)
            if first < last:
                shard.append(ParameterSlice(index, first, last))
        before += size
    return [shard for shard in shards if shard]


FEW_NUMBERS = 200_000
"""With fewer weights than this, one thread has moved them all before a second one is awake."""


class ShardedOptimizer:
    """Moves ``parameters`` (float32, on one device, which keep their place and order in memory) by ``params``' optimiser, each of
    ``groups`` by one of its own: at its rate, clipped by itself, and at its updates.

    Every thread keeps the moments of its own shard of the weights and moves no other, so that a wide layer is divided as well as
    many small ones. An update whose gradient or loss is not finite moves nothing.
    """

    def __init__(
        self,
        params: LearnerParameterSet,
        parameters: Sequence[Tensor],
        threads: DataParallelThreads,
        groups: Sequence[ParameterGroup] = (),
    ) -> None:
        self._parameters = list(parameters)
        self._threads = threads
        # Float32 on the device, beside the groups' own numbers: a graph reads them anew each time. No limit is the largest one.
        self._limits = torch.empty(max(1, len(groups)), device=self._parameters[0].device)
        self._rates = self._limits.clone()
        self.follow(params, groups)
        self.shards: list[list[ParameterSlice]] = []
        """Slices of parameters of one group, which one optimiser moves."""
        self._group_of: list[int] = []
        self._optimizers: list[Optimizer] = []
        for number, sizes in enumerate(_sizes(self._parameters, self._groups)):
            make = _maker(params, self._groups[number])
            shards = shard_evenly(sizes, threads.count if sum(sizes) >= FEW_NUMBERS else 1)
            self.shards += shards
            self._group_of += [number] * len(shards)
            weights = ([each.select(self._parameters) for each in shard] for shard in shards)
            self._optimizers += [make(each, params.learning_rate) for each in weights]
        self._weights = [optimizer.weights for optimizer in self._optimizers]
        # Reading a number on a CPU waits for nothing.
        self._skips_on_device = not self._parameters[0].is_cpu

    def follow(self, params: LearnerParameterSet, groups: Sequence[ParameterGroup]) -> None:
        """Take over rates and clip norms of the same groups."""
        self._groups = list(groups) or [ParameterGroup(self._parameters, 1.0, params.gradient_clip_norm)]
        self._limits.copy_(torch.tensor([group.clip_norm or torch.finfo().max for group in self._groups]))
        self._rates.copy_(torch.tensor([group.rate for group in self._groups]))

    def step(
        self,
        gradients: Sequence[Sequence[Tensor]],
        learning_rate: float | Tensor,
        on_moved: Callable[[Sequence[ParameterSlice]], None],
        scale: Tensor | None = None,
        update: Tensor | None = None,
        loss: Tensor | None = None,
    ) -> Tensor:
        """Move the weights along the sum of the micro-batches' gradients.

        ``gradients``: of each micro-batch one tensor a parameter, of any precision; they are given away. ``on_moved(shard)`` is
        called by the thread that has moved that shard. ``scale``: how many times too large all gradients are, a number on the
        device; ``learning_rate`` may be one, too. ``update``: the number of this update, for groups that move at some alone; on
        the device, as ``loss`` is. Returns the norm of the gradient itself before clipping, on the device.
        """
        ordered = [self._in_order(each) for each in gradients]
        numbers = range(len(self.shards))
        norms = self._threads.map(lambda number: self._add_up(number, ordered), numbers)
        if scale is not None:
            norms = [each / scale for each in norms]
        norm = _norm(norms)
        factors = [
            self._factor(number, [each for each, of in zip(norms, self._group_of, strict=True) if of == number], scale)
            for number in range(len(self._groups))
        ]
        blocked = ~torch.isfinite(norm if loss is None else norm + loss)
        blocked_of = [self._blocked(group, blocked, update) for group in self._groups]
        still = [not self._skips_on_device and bool(each) for each in blocked_of]

        def move(number: int) -> None:
            group = self._group_of[number]
            if still[group]:
                return
            on_device = isinstance(learning_rate, Tensor)
            rate = learning_rate * (self._rates[group] if on_device else self._groups[group].rate)
            self._move(number, factors[group], blocked_of[group], rate)
            on_moved(self.shards[number])

        if not all(still):
            self._threads.map(move, numbers)
            torch.autograd.graph.increment_version(self._parameters)  # a fused step changes them without saying so
        return norm

    def _blocked(self, group: ParameterGroup, blocked: Tensor, update: Tensor | None) -> Tensor:
        """Whether a group stays where it is."""
        if group.every == 1:
            return blocked
        assert update is not None, "a group that does not move at every update needs the update's number"
        return blocked | (update % group.every != 0)

    def _factor(self, group: int, norms: Sequence[Tensor], scale: Tensor | None) -> Tensor:
        """What a group's gradients, of these norms and ``scale`` times too large, are multiplied by."""
        factor = torch.clamp((_norm(norms) + 1e-6).reciprocal() * self._limits[group], max=1.0)
        return factor if scale is None else factor / scale

    def _in_order(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients in their parameters' order, no two in the same memory: of two biases that are added they may be."""
        ordered: list[Tensor] = []
        taken: set[int] = set()
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            ordered.append(in_order_of(parameter, gradient.clone() if gradient.data_ptr() in taken else gradient))
            taken.add(gradient.data_ptr())
        return ordered

    @torch.no_grad()
    def _add_up(self, number: int, gradients: list[list[Tensor]]) -> Tensor:
        """Set the gradient of a shard, in float32; its norm. The order of summation is always the same."""
        first, *others = gradients
        total = [each.select(first).float() for each in self.shards[number]]
        for other in others:
            torch._foreach_add_(total, [each.select(other).float() for each in self.shards[number]])
        for weight, gradient in zip(self._weights[number], total, strict=True):
            weight.grad = gradient
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(total)))
        return norm

    @torch.no_grad()
    def _move(self, number: int, factor: Tensor, blocked: Tensor, learning_rate: float | Tensor) -> None:
        optimizer = self._optimizers[number]
        torch._foreach_mul_([weight.grad for weight in self._weights[number] if weight.grad is not None], factor)
        optimizer.learning_rate = learning_rate
        if self._skips_on_device:
            optimizer.found_inf = blocked.float()
        optimizer.step()

    def state(self, index: int) -> dict[str, Tensor]:
        """What the optimiser keeps of the ``index``-th parameter, by name: tensors of its shape and order, and ``step``."""
        state: dict[str, Tensor] = {}
        for optimizer, part, weight in self._places(index):
            for name, value in optimizer.state.get(weight, {}).items():
                if name == "step":
                    state[name] = value
                else:
                    part.view(state.setdefault(name, torch.empty_like(self._parameters[index]))).copy_(value)
        return state

    def state_names(self, index: int) -> frozenset[str]:
        """Names of what the optimiser keeps of the ``index``-th parameter once it has moved it."""
        return frozenset(("step", *(name for optimizer, *_ in self._places(index) for name in optimizer.names)))

    def load(self, index: int, saved: Mapping[str, Tensor]) -> None:
        """Put what ``state`` gave for this parameter in its place, however many threads there were then.

        What the optimiser keeps already stays where it is in memory: a CUDA graph of a step knows these places.
        """
        parameter = self._parameters[index]
        for optimizer, part, weight in self._places(index):
            kept = optimizer.state.setdefault(weight, {"step": optimizer.steps})
            for name, value in saved.items():
                here = value.to(parameter.device)
                found = here if name == "step" else part.view(in_order_of(parameter, here))
                if name in kept:
                    kept[name].copy_(found)
                else:
                    kept[name] = found.clone()

    def tensors(self) -> dict[str, Tensor]:
        """Everything that is kept, itself and not a copy, shard for shard; nothing before the first step. It begins as zeros."""
        return {
            f"{name}.{shard}.{number}": value
            for shard, (optimizer, weights) in enumerate(zip(self._optimizers, self._weights, strict=True))
            for number, weight in enumerate(weights)
            for name, value in optimizer.state.get(weight, {}).items()
        }

    def _places(self, index: int) -> Iterator[tuple[Optimizer, ParameterSlice, Tensor]]:
        """Where the numbers of the ``index``-th parameter are moved: by which optimiser, which of them, and their view."""
        for optimizer, shard, weights in zip(self._optimizers, self.shards, self._weights, strict=True):
            for part, weight in zip(shard, weights, strict=True):
                if part.index == index:
                    yield optimizer, part, weight


def _norm(norms: Sequence[Tensor]) -> Tensor:
    """That of all that these are norms of."""
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(list(norms)))


def _sizes(parameters: Sequence[Tensor], groups: Sequence[ParameterGroup]) -> list[list[int]]:
    """How many numbers of each parameter are in each group: all or none. Raises ValueError where one is in none or in several."""
    places = {id(parameter): index for index, parameter in enumerate(parameters)}
    sizes = [[0] * len(parameters) for _ in groups]
    for of_group, group in zip(sizes, groups, strict=True):
        for parameter in group.parameters:
            index = places.get(id(parameter))
            if index is None:
                raise ValueError("groups: a parameter of one is none of the network that learns")
            of_group[index] = parameter.numel()
    if any(sum(1 for size in each if size) != 1 for each in zip(*sizes, strict=True)):
        raise ValueError("groups: every parameter of the network that learns has to be in one, and in one alone")
    return sizes


def in_order_of(parameter: Tensor, value: Tensor) -> Tensor:
    """``value``, which has the shape of ``parameter``, with its order in memory.

    An optimiser goes through a slice of a parameter, its gradient and its moments side by side in memory, and takes for granted
    that the same places belong together: those of channels-last weights must be channels-last too.
    """
    return value if value.stride() == parameter.stride() else torch.empty_like(parameter).copy_(value)


def _maker(params: LearnerParameterSet, group: ParameterGroup) -> Callable[[Sequence[Tensor], float], Optimizer]:
    """What makes a group's optimisers."""
    if group.optimizer is not None:
        return group.optimizer
    if params.optimizer == "Adam":
        return partial(Adam, epsilon=params.optimizer_epsilon)
    decay, momentum = params.rmsprop_decay, params.rmsprop_momentum
    centred = params.optimizer == "CentredRMSProp"
    return partial(RMSProp, decay=decay, epsilon=params.optimizer_epsilon, momentum=momentum, centred=centred)

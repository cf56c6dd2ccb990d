"""What an algorithm learns from, how that is split for several cores and for several passes, and what a loss gives back.

Shapes: B transitions or unrolls, T steps of an unroll, M single steps, S frame stack, F frame shape, H units of memory. Shuffles
come from torch's global generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from rljob.algorithms.layout import select
from rljob.observation import each

B = TypeVar("B")
Observation: TypeAlias = Any
"""A tensor [..., S, *F], or, where an environment shows several kinds of numbers, a dict of such by column: networks take
both."""


class MicroBatch(NamedTuple, Generic[B]):
    """A part of a batch for one core, and the share (0..1) that it is of the whole."""

    batch: B
    share: float


class TransitionBatch(NamedTuple):
    """Transitions to learn from, on one device.

    observation, next_observation: uint8|float32 [B, S, *F], or a dict of such tensors by column (``Observation``); the state
    acted in, and the state m <= n steps later.
    action: int64 [B], or [B, choices] where an action has several. control: float32 [B, controls], None where there are none.
    n_step_return: float32 [B], sum of gamma^k r_k over the m steps.
    discount: float32 [B], gamma^m, and 0 where the episode terminated inside the window (never where it was truncated).
    weight: float32 [B], importance weights of the prioritized draw, 1 at most.
    steps: float32 scalar, agent steps of all environments when the update began, for schedules. None outside of an update.
    update: int64 scalar, the number of this update in the run, from 1 on. None outside of an update.
    noise: float32 [B, ...], standard normal numbers for a loss that samples, as many as ``TransitionAlgorithm.noise`` asks for;
    None where it asks for none.
    """

    observation: Observation
    next_observation: Observation
    action: Tensor
    n_step_return: Tensor
    discount: Tensor
    weight: Tensor
    steps: Tensor | None = None
    control: Tensor | None = None
    noise: Tensor | None = None
    update: Tensor | None = None

    def split(self, count: int) -> list[MicroBatch[TransitionBatch]]:
        """At most ``count`` micro-batches of about as many rows each."""
        return [MicroBatch(self._rows(rows), share) for rows, share in even_slices(len(self.action), count)]

    def _rows(self, chosen: slice) -> TransitionBatch:
        parts = {name: getattr(self, name) for name in self._fields if name not in ("steps", "update")}
        return self._replace(
            **{name: each(lambda tensor: tensor[chosen], part) for name, part in parts.items() if part is not None}
        )


class UnrollBatch(NamedTuple):
    """Unrolls to learn from, on one device. Per-step tensors have time first.

    observation: uint8|float32 [B, T + 1, S, *F], or a dict of such by column, the last one behind the last step.
    action: int64 [T, B], or [T, B, choices]. control: float32 [T, B, controls] or None.
    reward, discount, log_prob (log mu(a|s) of the policy that acted), final_value: float32 [T, B].
    ended: uint8 [T, B], 1 where an episode terminated with the step, 2 where it was truncated, else 0. state: float32 [B, 2, H]
    before the first step.
    ``discount`` is gamma, and 0 where an episode ended, whichever way; ``final_value`` is what the acting policy expected of the
    final observation of an episode that was truncated, else 0.

    advantage, value_target: float32 [T, B], or None where the loss finds them itself. They are set by an algorithm's
    ``minibatches``, never by the actors. advantage_std: float32 scalar, the deviation that the advantages had before they were
    normalised; None where they are as they were found.

    A minibatch of M single steps (``single_steps``) has observation [M, S, *F], and [M] for action (or [M, choices]), control,
    log_prob, advantage and value_target; all else in it is empty.

    steps: float32 scalar, agent steps of all environments when the update began, for schedules; update: int64 scalar, the number
    of this update in the run, from 1 on. None outside of an update.
    """

    observation: Observation
    action: Tensor
    reward: Tensor
    discount: Tensor
    log_prob: Tensor
    final_value: Tensor
    ended: Tensor
    state: Tensor
    advantage: Tensor | None = None
    value_target: Tensor | None = None
    steps: Tensor | None = None
    control: Tensor | None = None
    advantage_std: Tensor | None = None
    update: Tensor | None = None

    @property
    def single_steps(self) -> bool:
        """Whether these are single steps, whose order in time is lost."""
        return self.log_prob.dim() == 1

    def split(self, count: int) -> list[MicroBatch[UnrollBatch]]:
        """At most ``count`` micro-batches of about as many unrolls (or single steps) each."""
        part = self._steps if self.single_steps else self.unrolls
        return [MicroBatch(part(which), share) for which, share in even_slices(self.log_prob.shape[-1], count)]

    def unrolls(self, chosen: Tensor | slice) -> UnrollBatch:
        """Some of the unrolls, whole; by their numbers (int64 [n]) or as a slice."""
        observation = self.observation
        time_first = {
            name: getattr(self, name)
            for name in self._fields
            if name not in ("observation", "state", "steps", "advantage_std", "update")
        }
        return self._replace(
            observation=each(lambda of: of[chosen] if isinstance(chosen, slice) else select(of, chosen), observation),
            state=self.state[chosen],
            **{name: tensor[:, chosen] for name, tensor in time_first.items() if tensor is not None},
        )

    def _steps(self, chosen: slice) -> UnrollBatch:
        return self._replace(
            observation=each(lambda of: of[chosen], self.observation),
            action=self.action[chosen],
            control=None if self.control is None else self.control[chosen],
            log_prob=self.log_prob[chosen],
            advantage=None if self.advantage is None else self.advantage[chosen],
            value_target=None if self.value_target is None else self.value_target[chosen],
        )


def as_batch(batch: Callable[..., B], tensors: Mapping[str, Tensor]) -> B:
    """A batch of tensors by name; actions become what torch takes for an index, and the columns of observations a dict."""
    given: dict[str, Any] = {}
    for key, tensor in tensors.items():
        name, dot, column = key.partition(".")
        if dot:
            given.setdefault(name, {})[column] = tensor
        else:
            given[name] = tensor.long() if name == "action" else tensor
    return batch(**given)


def even_slices(size: int, count: int) -> Iterator[tuple[slice, float]]:
    """``size`` items in at most ``count`` runs of about equal length, none empty: (which, share of the whole)."""
    count = min(size, count)
    edges = [size * index // count for index in range(count + 1)]
    for start, end in pairwise(edges):
        yield slice(start, end), (end - start) / size


class LossResult(NamedTuple):
    """The loss of a batch, and what else the loops want to know of it.

    value: float32 scalar to differentiate; the mean over the batch, or, with ``summed``, the sum.
    metrics: detached scalars by name, means over the batch; at least those that ``Algorithm.metrics`` names.
    td_abs: float32 [B], detached; the absolute temporal-difference errors that new priorities are made of. None where there is
    no replay.
    divergence: detached scalar, the mean divergence in nats from the policy that acted; what an adaptive learning rate follows.
    None where it is not asked for.
    """

    value: Tensor
    metrics: Mapping[str, Tensor]
    td_abs: Tensor | None = None
    divergence: Tensor | None = None
    summed: bool = False

    def weight(self, share: float) -> float:
        """That of this loss of a micro-batch in the loss of the whole, of which it is ``share``."""
        return 1.0 if self.summed else share

    @classmethod
    def joined(cls, results: Sequence[LossResult], shares: Sequence[float]) -> LossResult:
        """The result of a batch from those of its micro-batches, added up in their order; detached."""
        first = results[0]
        weights = torch.tensor(list(shares), device=first.value.device)

        def mean(values: Sequence[Tensor]) -> Tensor:
            return torch.stack(list(values)) @ weights

        value = torch.zeros_like(first.value, requires_grad=False)
        for result, share in zip(results, shares, strict=True):
            value += result.value.detach() * result.weight(share)
        errors = [result.td_abs for result in results if result.td_abs is not None]
        divergences = [result.divergence for result in results if result.divergence is not None]
        return cls(
            value,
            {name: mean([result.metrics[name] for result in results]) for name in first.metrics},
            torch.cat(errors) if errors else None,
            mean(divergences) if divergences else None,
            first.summed,
        )


Moments: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Mean and deviation of numbers, of this process's minibatch and, where a learner has several, of all others'."""


def moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation."""
    return values.mean(), values.std(correction=0)


def _shuffled(count: int, device: torch.device) -> torch.Tensor:
    """0 to ``count`` - 1 in a random order on ``device``, drawn on the CPU; a GPU's is copied without waiting for it."""
    return torch.randperm(count, pin_memory=device.type == "cuda").to(device, non_blocking=True)


def minibatches_of_unrolls(batch: UnrollBatch, epochs: int, count: int) -> Iterator[UnrollBatch]:
    """``epochs`` passes over ``count`` minibatches of whole unrolls, so that time stays together; shuffled where these are
    several."""
    if count == 1:
        for _ in range(epochs):
            yield batch
        return
    unrolls = batch.log_prob.shape[1]
    size = unrolls // count
    for _ in range(epochs):
        order = _shuffled(unrolls, batch.action.device)
        for number in range(count):
            yield batch.unrolls(order[number * size : (number + 1) * size])


def minibatches_of_steps(batch: UnrollBatch, epochs: int, count: int) -> Iterator[UnrollBatch]:
    """``epochs`` passes over ``count`` minibatches of single steps, shuffled. ``batch`` has targets: single steps could not find
    them. Raises ValueError where it has none."""
    steps, unrolls = batch.log_prob.shape
    observation = each(lambda of: of.flatten(0, 1), batch.observation)
    targets = _target(batch, "advantage"), _target(batch, "value_target")
    flat = [tensor.flatten(0, 1) for tensor in (batch.action, batch.log_prob, *targets)]
    control = None if batch.control is None else batch.control.flatten(0, 1)
    total = steps * unrolls
    size = total // count
    for _ in range(epochs):
        order = _shuffled(total, batch.action.device)
        for number in range(count):
            index = order[number * size : (number + 1) * size]  # t * B + b
            time, unroll = index.div(unrolls, rounding_mode="floor"), index.remainder(unrolls)
            action, log_prob, advantage, value_target = (tensor[index] for tensor in flat)
            rows = unroll * (steps + 1) + time
            nothing = log_prob.new_zeros(0)
            yield UnrollBatch(
                observation=each(lambda of, rows=rows: select(of, rows), observation),
                action=action,
                reward=nothing,
                discount=nothing,
                log_prob=log_prob,
                final_value=nothing,
                ended=nothing,
                state=nothing,
                advantage=advantage,
                value_target=value_target,
                steps=batch.steps,
                control=None if control is None else control[index],
                advantage_std=batch.advantage_std,
            )


def _target(batch: UnrollBatch, name: str) -> torch.Tensor:
    found, shape = getattr(batch, name), batch.log_prob.shape
    if isinstance(found, torch.Tensor) and found.shape == shape:
        return found
    came = list(found.shape) if isinstance(found, torch.Tensor) else found
    raise ValueError(
        f"single steps need {name} [T, B] of the batch, {list(shape)} here, got {came}; batch._replace(advantage=..., "
        "value_target=...) sets both"
    )

"""Unrolls to learn from, and how they are taken apart: into the minibatches of several passes, or into pieces for several cores.

Shapes: T steps of an unroll, B unrolls, M single steps, S frame stack, F frame shape, H units of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rljob.algorithms.layout import select
from rljob.algorithms.piece import slices


class Batch(NamedTuple):
    """Unrolls to learn from, on one device. Per-step tensors have time first.

    observation: uint8|float32 [B, T + 1, S, *F], the last one behind the last step. action: int64 [T, B].
    reward, discount, log_prob (log mu(a|s) of the policy that acted), final_value: float32 [T, B].
    value: float32 [T + 1, B], what the acting policy expected. state: float32 [B, 2, H] before the first step.
    """

    observation: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    log_prob: Tensor
    final_value: Tensor
    value: Tensor
    state: Tensor


class Part(NamedTuple):
    """What one update learns from: unrolls, with targets where these do not follow from the network (``ClippedSurrogate``)."""

    batch: Batch
    advantage: Tensor | None = None
    target: Tensor | None = None


def parts_of_unrolls(whole: Part, epochs: int, minibatches: int) -> Iterator[Part]:
    """``epochs`` passes over ``minibatches`` parts of whole unrolls, so that time stays together; shuffled where these are
    several. Shuffles come from torch's global generator."""
    if minibatches == 1:
        for _ in range(epochs):
            yield whole
        return
    unrolls = whole.batch.action.shape[1]
    size = unrolls // minibatches
    for _ in range(epochs):
        order = torch.randperm(unrolls).to(whole.batch.action.device)
        for part in range(minibatches):
            yield _unrolls(whole, order[part * size : (part + 1) * size])


def parts_of_steps(whole: Part, epochs: int, minibatches: int) -> Iterator[Part]:
    """``epochs`` passes over ``minibatches`` parts of single steps, shuffled by torch's global generator. ``whole`` has targets:
    single steps could not find them."""
    batch = whole.batch
    steps, unrolls = batch.action.shape
    observation = batch.observation.flatten(0, 1)
    assert whole.advantage is not None, "single steps need their advantages"
    assert whole.target is not None, "single steps need their targets"
    flat = [each.flatten() for each in (batch.action, batch.log_prob, whole.advantage, whole.target)]
    count = steps * unrolls
    size = count // minibatches
    for _ in range(epochs):
        order = torch.randperm(count).to(batch.action.device)
        for part in range(minibatches):
            index = order[part * size : (part + 1) * size]  # t * B + b
            time, unroll = index.div(unrolls, rounding_mode="floor"), index.remainder(unrolls)
            action, log_prob, advantage, target = (each[index] for each in flat)
            nothing = log_prob.new_zeros(0)
            yield Part(
                Batch(
                    observation=select(observation, unroll * (steps + 1) + time),
                    action=action,
                    reward=nothing,
                    discount=nothing,
                    log_prob=log_prob,
                    final_value=nothing,
                    value=nothing,
                    state=nothing,
                ),
                advantage,
                target,
            )


def split(part: Part, count: int) -> Iterator[tuple[Part, float]]:
    """``part`` in at most ``count`` pieces of about equal size, with the share (0..1) that each is of it."""
    single = part.batch.action.dim() == 1
    for which, share in slices(part.batch.action.shape[-1], count):
        yield _steps(part, which) if single else _unrolls(part, which), share


def _steps(part: Part, chosen: slice) -> Part:
    batch = part.batch
    assert part.advantage is not None, "single steps need their advantages"
    assert part.target is not None, "single steps need their targets"
    of_steps = batch._replace(
        observation=batch.observation[chosen], action=batch.action[chosen], log_prob=batch.log_prob[chosen]
    )
    return Part(of_steps, part.advantage[chosen], part.target[chosen])


def _unrolls(whole: Part, chosen: Tensor | slice) -> Part:
    batch = whole.batch
    return Part(
        Batch(
            batch.observation[chosen] if isinstance(chosen, slice) else select(batch.observation, chosen),
            batch.action[:, chosen],
            batch.reward[:, chosen],
            batch.discount[:, chosen],
            batch.log_prob[:, chosen],
            batch.final_value[:, chosen],
            batch.value[:, chosen],
            batch.state[chosen],
        ),
        None if whole.advantage is None else whole.advantage[:, chosen],
        None if whole.target is None else whole.target[:, chosen],
    )

"""How a batch of unrolls becomes the minibatches of several passes. Shuffles come from torch's global generator."""

from collections.abc import Iterator

import torch

from rljob.algorithms.batches import UnrollBatch
from rljob.algorithms.layout import select
from rljob.observation import each


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

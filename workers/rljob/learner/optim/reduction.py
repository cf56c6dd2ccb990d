"""One update of several processes: the gradients of all ranks' parts of a batch, and all else of their losses, as if one had
computed the whole."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rljob.algorithms.batches import LossResult, TransitionBatch, UnrollBatch
from rljob.learner.ranks import Ranks


def rows_of(minibatch: TransitionBatch | UnrollBatch) -> int:
    """The transitions or single steps that a mean over it is of."""
    return len(minibatch.weight) if isinstance(minibatch, TransitionBatch) else minibatch.log_prob.numel()


@torch.no_grad()
def over_ranks(
    ranks: Ranks, result: LossResult, gradients: Sequence[Sequence[Tensor]], like: Sequence[Tensor], rows: int
) -> tuple[LossResult, list[Tensor]]:
    """The loss and gradient of the whole minibatch, of which this rank has ``rows``; but for ``td_abs``, which is of these rows.

    ``gradients`` of each of its micro-batches one tensor a parameter, whose shapes and precision ``like`` has. All goes in one
    sum: means count by the rows that they are of, so that parts may be uneven, and a rank without a batch adds zeros. A number
    that is not finite makes the sum so for every rank.
    """
    own = [
        sum((each[index].to(of.dtype) for each in gradients[1:]), gradients[0][index].to(of.dtype))
        for index, of in enumerate(like)
    ]
    means = [*result.metrics.values(), *([] if result.divergence is None else [result.divergence])]
    counted = torch.stack([*means, torch.ones_like(result.value)]).to(like[0].dtype) * rows
    of_loss = torch.cat([each.flatten() for each in (*own, result.value.detach().to(like[0].dtype))])
    flat = torch.cat([of_loss if result.summed else of_loss * rows, counted])
    if not ranks.present:
        flat.zero_()
    ranks.sum(flat)
    of_loss, counted = flat[: len(of_loss)], flat[len(of_loss) : -1] / flat[-1]
    if not result.summed:
        of_loss /= flat[-1]
    *whole, value = torch.split(of_loss, [*(each.numel() for each in like), 1])
    kept = counted.to(result.value.dtype)
    return (
        result._replace(
            value=value[0],
            metrics=dict(zip(result.metrics, kept, strict=False)),
            divergence=None if result.divergence is None else kept[-1],
        ),
        [each.view(of.shape) for each, of in zip(whole, like, strict=True)],
    )

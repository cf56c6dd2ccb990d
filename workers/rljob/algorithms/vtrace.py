"""Targets of actor-critic learning from unrolls: V-trace (off-policy) and generalised advantage estimation. Pure tensors.

Time is the first dimension everywhere: T steps of B unrolls. ``discount[t]`` multiplies whatever follows step t; it is 0 where an
episode ended inside the unroll, and nothing after such a step reaches back over it.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Targets(NamedTuple):
    """``value`` float32 [T, B]: what the critic should say of the states acted in. ``advantage`` float32 [T, B]: what scales the
    policy's gradient. ``ratio`` float32 [T, B]: the unclipped importance ratios. All without a gradient."""

    value: Tensor
    advantage: Tensor
    ratio: Tensor


_LARGEST_LOG_RATIO = 20.0


def bounded_log_ratio(log_ratio: Tensor) -> Tensor:
    """``log_ratio`` within what ``exp`` makes a finite number of, far beyond any clip: densities of several continuous numbers
    can differ by more, and infinity times 0 is NaN."""
    return log_ratio.clamp(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO)


@torch.no_grad()
def vtrace(
    log_ratio: Tensor,
    discount: Tensor,
    reward: Tensor,
    value: Tensor,
    bootstrap: Tensor,
    *,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    trace_decay: float = 1.0,
) -> Targets:
    """V-trace (Espeholt et al. 2018, section 4.1 and remark 2), computed in float32 whatever comes in.

    ``log_ratio`` [T, B] is log pi(a|s) - log mu(a|s); ``discount``, ``reward``, ``value`` [T, B]; ``bootstrap`` [B] the value of
    the state after the last step. With rho = min(rho_clip, ratio) and c = trace_decay * min(c_clip, ratio):
    ``v_t = V_t + rho_t (r_t + discount_t V_{t+1} - V_t) + discount_t c_t (v_{t+1} - V_{t+1})`` and the advantage is
    ``rho_t (r_t + discount_t v_{t+1} - V_t)``. ``rho_clip`` may be infinite.
    """
    log_ratio, discount, reward, value, bootstrap = (
        each.float() for each in (log_ratio, discount, reward, value, bootstrap)
    )
    ratio = bounded_log_ratio(log_ratio).exp()
    rho = ratio.clamp(max=rho_clip)
    trace = discount * trace_decay * ratio.clamp(max=c_clip)
    following = torch.cat([value[1:], bootstrap.unsqueeze(0)])
    delta = rho * (reward + discount * following - value)
    correction = discounted(delta, trace)
    corrected = value + correction
    ahead = torch.cat([corrected[1:], bootstrap.unsqueeze(0)])
    return Targets(corrected, rho * (reward + discount * ahead - value), ratio)


@torch.no_grad()
def gae(discount: Tensor, reward: Tensor, value: Tensor, bootstrap: Tensor, *, trace_decay: float) -> Targets:
    """Generalised advantage estimation (Schulman et al. 2016) with ``trace_decay`` lambda; shapes as in ``vtrace``.

    The value targets are advantage + value, the lambda-return.
    """
    discount, reward, value, bootstrap = (each.float() for each in (discount, reward, value, bootstrap))
    following = torch.cat([value[1:], bootstrap.unsqueeze(0)])
    advantage = discounted(reward + discount * following - value, discount * trace_decay)
    return Targets(advantage + value, advantage, torch.ones_like(advantage))


@torch.no_grad()
def explained_variance(target: Tensor, value: Tensor) -> Tensor:
    """The share of the variance of ``target`` that ``value`` explains: 1 - Var(target - value) / Var(target), a scalar.

    0 where ``target`` is one number, of which there is nothing to explain; -1 for all that is below, so that a mean over updates
    is not that of the few whose targets hardly vary.
    """
    variance = target.var(correction=0)
    share = (1.0 - (target - value).var(correction=0) / variance).clamp(min=-1.0)
    return torch.where(variance > 0.0, share, torch.zeros_like(share))


def discounted(reward: Tensor, discount: Tensor) -> Tensor:
    """``x_t = reward_t + discount_t x_{t+1}`` over [T, B], beginning with 0 behind the last step."""
    ahead = torch.zeros_like(reward[0])
    backwards = []
    for now, carried in zip(reversed(reward.unbind()), reversed(discount.unbind()), strict=True):
        ahead = torch.addcmul(now, carried, ahead)
        backwards.append(ahead)
    return torch.stack(backwards[::-1])

"""IMPALA (Espeholt et al. 2018): actors send unrolls, one learner corrects for the age of their policy; two losses.

``VTrace`` is the published one: policy gradient, value and entropy terms on V-trace targets, summed over time and batch.
``ClippedSurrogate`` learns from the same unrolls with several passes of minibatches, generalised advantages from the values that
the actors saw, and a clipped ratio (PPO's objective on asynchronous data; others call it APPO).
Either can carry a penalty on leaving the policy that acted (``policy_kl_cost``), which V-trace needs to make several passes.

Read from top to bottom, this is the whole algorithm: the network, how an actor acts, and how unrolls become a loss. Pure
functions on tensors of static shape; no sockets, no files, no clock.

Shapes: T steps of an unroll, B unrolls, N environments, S frame stack, F frame shape, A actions, H units of memory.

Ends of episodes: ``discount`` is gamma, and 0 where an episode ended, whichever way. A truncated episode would have gone on, so
its last reward gets ``gamma * final_value`` added, where ``final_value`` is what the acting policy expected of the final
observation. That keeps every unroll at T steps and costs the learner no forward pass; the estimate is as old as the policy that
acted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rljob.algorithms.decision import Decision, Game, Inference
from rljob.algorithms.piece import Piece
from rljob.algorithms.policy_network import PolicyConfig, PolicyNetwork
from rljob.algorithms.unroll_parts import Batch, Part, parts_of_steps, parts_of_unrolls, split
from rljob.algorithms.vtrace import Targets, gae, vtrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rljob.api import EnvironmentParameters, ImpalaParameters
    from rljob.envs.spec import EnvironmentSpec

FIGURES = ("loss", "gradient_norm", "policy_loss", "value_loss", "entropy", "policy_kl", "clip_share")
"""What an update reports, in this order. ``policy_kl``: mean of ``ratio - 1 - log ratio`` between the policy that learns and the
one that acted. ``clip_share``: share of steps whose ratio was clipped (by rho_clip, or by the surrogate)."""


class Loss(NamedTuple):
    """``value``: float32 scalar to differentiate. ``metrics``: detached scalars for the last five of ``FIGURES``."""

    value: Tensor
    metrics: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def build(spec: EnvironmentSpec, params: ImpalaParameters, env_params: EnvironmentParameters) -> PolicyNetwork:
    """The network for this environment, initialised from torch's global generator (seed it before).

    Raises ValueError when the network asked for cannot see frames of this shape.
    """
    default_scale = 1.0 / 255.0 if np.dtype(spec.frame_dtype) == np.uint8 else 1.0
    return PolicyNetwork(
        PolicyConfig(
            kind=str(params.network),
            frame_shape=tuple(spec.frame_shape),
            stack=spec.stack,
            num_actions=spec.num_actions,
            hidden=params.hidden_units,
            lstm=params.lstm_units if params.recurrent == "LSTM" else 0,
            layer_norm=params.layer_norm,
            orthogonal=params.orthogonal_init,
            scale=env_params.input_scale or default_scale,
            centred=env_params.centre_input,
        )
    )


# ---------------------------------------------------------------------------------------------------------------- acting


def infer(net: PolicyNetwork, observation: Tensor | NDArray[Any], state: Tensor | NDArray[Any]) -> Inference:
    """Logits and value of N observations [N, S, *F] as one tensor float32 [N, A + 1], and the memory afterwards; no gradient."""
    with torch.inference_mode():
        logits, value, after = net(torch.as_tensor(observation), torch.as_tensor(state))
        return Inference(torch.cat([logits, value.unsqueeze(1)], dim=1), after)


def decide(
    outputs: NDArray[np.float32], epsilon: NDArray[np.floating[Any]] | float, generator: np.random.Generator
) -> Decision:
    """Sample an action for each of N environments from its logits; ``epsilon`` is not used, the policy explores by itself.

    The generator advances by N * A numbers whatever the outcome, so that a run replays from its seed.
    """
    logits, value = outputs[:, :-1], outputs[:, -1]
    log_policy = _log_softmax(logits)
    action = _sample(log_policy, generator.random(logits.shape))
    return Decision(action, log_policy[np.arange(len(action)), action].astype(np.float32), value)


def random_decision(num_envs: int, num_actions: int, generator: np.random.Generator) -> Decision:
    """What an actor without weights does: anything, which is a policy too; its values are not known."""
    taken = np.full(num_envs, -math.log(num_actions), np.float32)
    unknown = np.full(num_envs, np.nan, np.float32)
    return Decision(generator.integers(0, num_actions, num_envs), taken, unknown)


def state_values(outputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """V(s), float32 [N]."""
    return outputs[:, -1]


def exploration(params: ImpalaParameters, slot: int, slots: int, num_envs: int) -> NDArray[np.float32]:
    """All zeros [N]: every environment follows the policy itself, and all slots are alike."""
    return np.zeros(num_envs, np.float32)


def judged_action(
    net: PolicyNetwork, observation: NDArray[Any], games: Sequence[Game], params: ImpalaParameters
) -> NDArray[np.int64]:
    """The action of each game that is being judged: sampled from logits / evaluationTemperature, or the best where that is 0.

    Each game draws from its own random numbers and keeps its own memory, so that it does not matter which are played together.
    """
    memory = net.config.lstm
    states = [np.zeros((2, memory), np.float32) if game.memory is None else game.memory for game in games]
    outputs, after = infer(net, observation, np.stack(states))
    for game, state in zip(games, after.cpu().numpy(), strict=True):
        game.memory = state
    logits = outputs[:, :-1].cpu().numpy()
    draws = np.stack([game.random.random(logits.shape[1]) for game in games])
    if params.evaluation_temperature == 0.0:
        best: NDArray[np.int64] = logits.argmax(axis=1)
        return best
    return _sample(_log_softmax(logits / params.evaluation_temperature), draws)


def _log_softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    log_policy: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_policy


def _sample(log_policy: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """The Gumbel-max trick: the largest of log-probabilities [N, A] with Gumbel noise is a sample of the distribution."""
    noise = -np.log(-np.log(np.maximum(uniform, np.finfo(np.float64).tiny)))
    action: NDArray[np.int64] = (log_policy + noise).argmax(axis=1)
    return action


# -------------------------------------------------------------------------------------------------------------- learning


def parts(batch: Batch, params: ImpalaParameters) -> Iterator[Part]:
    """What to learn from a batch, update for update: ``epochs`` passes over ``minibatches`` parts of equal size.

    Without a memory ``ClippedSurrogate`` shuffles single steps; in every other case a part is made of whole unrolls, so that
    time stays together. Shuffles come from torch's global generator.
    """
    whole = Part(batch)
    if params.loss == "ClippedSurrogate":
        found = surrogate_targets(batch, params)
        whole = Part(batch, found.advantage, found.value)
        if params.recurrent == "None":
            yield from parts_of_steps(whole, params.epochs, params.minibatches)
            return
    yield from parts_of_unrolls(whole, params.epochs, params.minibatches)


def surrogate_targets(batch: Batch, params: ImpalaParameters) -> Targets:
    """Advantages (normalised over the batch if so wanted) and value targets [T, B] from the values the actors saw."""
    found = gae(
        batch.discount,
        batch.reward + params.gamma * batch.final_value,
        batch.value[:-1],
        batch.value[-1],
        trace_decay=params.gae_lambda,
    )
    if not params.normalize_advantages:
        return found
    advantage = found.advantage
    return found._replace(advantage=(advantage - advantage.mean()) / (advantage.std() + 1e-8))


def loss(net: PolicyNetwork, part: Part, params: ImpalaParameters) -> Loss:
    """The loss of one part, by ``params.loss``: policy + value_cost * half the squared error - entropy_cost * entropy
    + policy_kl_cost * half the squared log-ratio, summed over its steps or their mean, as ``params.loss_reduction`` says.

    Half the squared log-ratio is, in the mean over what the acting policy did, the two policies' divergence to second order. It
    grows with the logarithm of a ratio; ``policy_kl`` grows with the ratio, and a few rare actions would be most of it.
    """
    batch = part.batch
    logits, values, following = _forward(net, batch)
    log_policy = functional.log_softmax(logits, dim=-1)
    taken = log_policy.gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
    log_ratio = taken - batch.log_prob
    entropy = -(log_policy.exp() * log_policy).sum(-1)
    if part.advantage is None or part.target is None:
        off_policy = log_ratio.detach() if params.correct_off_policy else torch.zeros_like(taken)
        found = vtrace(
            off_policy,
            batch.discount,
            batch.reward + params.gamma * batch.final_value,
            values.detach(),
            following.detach(),
            rho_clip=params.rho_clip,
            c_clip=params.c_clip,
            trace_decay=params.vtrace_lambda,
        )
        policy = -(taken * found.advantage)
        error = found.value - values
        clipped = found.ratio > params.rho_clip
    else:
        ratio = log_ratio.exp()
        bounded = ratio.clamp(1.0 - params.clip_range, 1.0 + params.clip_range)
        policy = -torch.minimum(ratio * part.advantage, bounded * part.advantage)
        error = part.target - values
        clipped = (ratio.detach() - 1.0).abs() > params.clip_range
    critic = 0.5 * error.square()
    total = policy + params.value_cost * critic - params.entropy_cost * entropy
    if params.policy_kl_cost > 0.0:
        total = total + params.policy_kl_cost * 0.5 * log_ratio.square()
    reduced = total.sum() if params.loss_reduction == "Sum" else total.mean()
    gap = log_ratio.detach()
    metrics = (policy, critic, entropy, gap.exp() - 1.0 - gap, clipped.float())
    a, b, c, d, e = (each.detach().mean() for each in metrics)
    return Loss(reduced, (a, b, c, d, e))


def _forward(net: PolicyNetwork, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """(logits [T, B, A], values [T, B], the value behind the last step [B]); of single steps [M, A], [M] and nothing."""
    if batch.action.dim() == 1:
        output = net(batch.observation)
        return output.logits, output.value, output.value[:0]
    logits, values = net.unroll(batch.observation, batch.state, batch.discount)
    return logits, values[:-1], values[-1]


def pieces(part: Part, count: int, params: ImpalaParameters) -> list[Piece]:
    """What one update learns from in at most ``count`` pieces of about equal size: of its unrolls, or of its single steps."""
    summed = params.loss_reduction == "Sum"
    return [Piece(some, share, 1.0 if summed else share) for some, share in split(part, count)]


def joined(losses: Sequence[Loss], pieces: Sequence[Piece]) -> Loss:
    """The loss of a part from the losses of its pieces, added up in their order; detached."""
    value = sum(loss.value.detach() * piece.weight for loss, piece in zip(losses, pieces, strict=True))
    shares = torch.tensor([piece.share for piece in pieces], device=losses[0].value.device)
    a, b, c, d, e = (torch.stack(each) @ shares for each in zip(*(loss.metrics for loss in losses), strict=True))
    return Loss(value, (a, b, c, d, e))  # type: ignore[arg-type]


def example(spec: EnvironmentSpec, params: ImpalaParameters, device: torch.device) -> Part:
    """What one update of the job's own shape learns from, to time updates with."""
    steps, unrolls = params.unroll_length, params.batch_size
    generator = torch.Generator().manual_seed(params.seed)
    frames = torch.randint(0, 255, (unrolls, steps + 1, *spec.observation_shape), generator=generator)
    flat = torch.zeros(steps, unrolls, device=device)
    memory = params.lstm_units if params.recurrent == "LSTM" else 0
    batch = Batch(
        observation=frames.to(getattr(torch, spec.frame_dtype)).to(device),
        action=flat.long(),
        reward=flat,
        discount=flat + params.gamma,
        log_prob=flat - math.log(spec.num_actions),
        final_value=flat,
        value=torch.zeros(steps + 1, unrolls, device=device),
        state=torch.zeros(unrolls, 2, memory, device=device),
    )
    state = torch.get_rng_state()  # shuffles of the real training must not depend on this one
    part = next(parts(batch, params))
    torch.set_rng_state(state)
    return part


def trial(net: PolicyNetwork, part: Part, params: ImpalaParameters) -> None:
    """One update of this job without its optimiser step; leaves no gradient behind."""
    loss(net, part, params).value.backward()  # type: ignore[no-untyped-call]
    net.zero_grad()

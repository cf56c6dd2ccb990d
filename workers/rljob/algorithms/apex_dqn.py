"""Ape-X DQN (Horgan et al. 2018): double, dueling, n-step Q-learning from prioritized replay, acted by a ladder of epsilons.

Read from top to bottom, this is the whole algorithm: the network, how an actor acts, and how a batch becomes a loss and new
priorities. Pure functions on tensors of static shape; no sockets, no files, no clock.

Shapes: B batch, N environments, S frame stack, F frame shape, A actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rljob.algorithms.decision import Decision, Game, Inference
from rljob.algorithms.networks import NetworkConfig, QNetwork
from rljob.algorithms.piece import Piece, slices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rljob.api import ApeXDQNParameters, EnvironmentParameters
    from rljob.envs.spec import EnvironmentSpec

FIGURES = ("loss", "gradient_norm", "q_taken")
"""What an update reports, in this order."""

PRIORITY_OFFSET = 1e-3  # keeps a transition that is predicted perfectly in the draw


class Batch(NamedTuple):
    """Transitions to learn from, on one device.

    observation, next_observation: uint8|float32 [B, S, *F]; the state acted in, and the state m <= n steps later.
    action: int64 [B]. n_step_return: float32 [B], sum of gamma^k r_k over the m steps.
    discount: float32 [B], gamma^m, and 0 where the episode terminated inside the window (never where it was truncated).
    weight: float32 [B], importance weights of the prioritized draw, 1 at most.
    """

    observation: Tensor
    next_observation: Tensor
    action: Tensor
    n_step_return: Tensor
    discount: Tensor
    weight: Tensor


class Loss(NamedTuple):
    """``value``: float32 scalar to differentiate. ``td_abs``: float32 [B], detached. ``metrics``: detached scalars."""

    value: Tensor
    td_abs: Tensor
    metrics: dict[str, Tensor]


def build(spec: EnvironmentSpec, params: ApeXDQNParameters, env_params: EnvironmentParameters) -> QNetwork:
    """The Q-network for this environment, initialised from torch's global generator (seed it before).

    Raises ValueError when the network asked for cannot see frames of this shape.
    """
    default_scale = 1.0 / 255.0 if np.dtype(spec.frame_dtype) == np.uint8 else 1.0
    return QNetwork(
        NetworkConfig(
            kind=str(params.network),
            frame_shape=tuple(spec.frame_shape),
            stack=spec.stack,
            num_actions=spec.num_actions,
            dueling=params.dueling,
            hidden_units=params.hidden_units,
            layer_norm=params.layer_norm,
            scale=env_params.input_scale or default_scale,
            centred=env_params.centre_input,
        )
    )


# ---------------------------------------------------------------------------------------------------------------- acting


def epsilon_ladder(index: int, total: int, base: float = 0.4, exponent: float = 7.0) -> float:
    """``base ** (1 + exponent * i / (N - 1))``: environment ``index`` of ``total`` explores less the higher its index.

    A single environment (``total`` 1) stands at the exploring end, ``base``. Raises ValueError for an index outside.
    """
    if not 0 <= index < total:
        raise ValueError(f"environment {index} is not on a ladder of {total}; an index from 0 to {total - 1} is")
    return float(base ** (1.0 + exponent * index / max(1, total - 1)))


def q_values(net: nn.Module, observation: Tensor | NDArray[Any]) -> Tensor:
    """Action values float32 [N, A] without a gradient; ``observation`` uint8|float32 [N, S, *F] is only read."""
    with torch.inference_mode():
        values: Tensor = net(torch.as_tensor(observation))
    return values


def infer(net: nn.Module, observation: Tensor | NDArray[Any], state: Tensor | NDArray[Any]) -> Inference:
    """Action values of N observations; the memory, of which there is none, comes back as it was."""
    return Inference(q_values(net, observation), torch.as_tensor(state))


def decide(
    outputs: NDArray[np.float32],
    epsilon: NDArray[np.floating[Any]] | float,
    generator: np.random.Generator,
) -> Decision:
    """Epsilon-greedy actions from action values float32 [N, A], each environment with its own epsilon (float [N], or one).

    The generator advances by the same amount whatever the outcome, so that a run replays from its seed.
    """
    count, actions = outputs.shape
    greedy = outputs.argmax(axis=1)
    explores = generator.random(count) < epsilon
    action = np.where(explores, generator.integers(0, actions, count), greedy).astype(np.int64, copy=False)
    rows = np.arange(count)
    return Decision(action, outputs[rows, action], outputs[rows, greedy])


def random_decision(num_envs: int, num_actions: int, generator: np.random.Generator) -> Decision:
    """What an actor without weights does: anything, with values that nobody knows."""
    unknown = np.full(num_envs, np.nan, np.float32)
    return Decision(generator.integers(0, num_actions, num_envs), unknown, unknown)


def state_values(outputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """max_a Q, float32 [N]."""
    best: NDArray[np.float32] = outputs.max(axis=1)
    return best


def exploration(params: ApeXDQNParameters, slot: int, slots: int, num_envs: int) -> NDArray[np.float32]:
    """The epsilons float32 [N] of the ``slot``-th of ``slots`` actors: its environments take neighbouring rungs of the ladder.

    A slot outside the ladder (more actors than the job has slots) wraps around.
    """
    total = max(1, slots) * num_envs
    first = slot % max(1, slots) * num_envs
    rungs = [epsilon_ladder(first + i, total, params.epsilon_base, params.epsilon_exponent) for i in range(num_envs)]
    return np.array(rungs, np.float32)


def judged_action(
    net: nn.Module, observation: NDArray[Any], games: Sequence[Game], params: ApeXDQNParameters
) -> NDArray[np.int64]:
    """The greedy action of each game that is being judged; random ones are the scorer's business (evaluationEpsilon)."""
    best: NDArray[np.int64] = q_values(net, observation).argmax(dim=1).cpu().numpy()
    return best


def example(spec: EnvironmentSpec, params: ApeXDQNParameters, device: torch.device) -> Batch:
    """A batch of the job's own shape to time updates with."""
    generator = torch.Generator().manual_seed(params.seed)
    frames = torch.randint(0, 255, (params.batch_size, *spec.observation_shape), generator=generator)
    observation = frames.to(getattr(torch, spec.frame_dtype)).to(device)
    rest = torch.zeros(params.batch_size, device=device)
    return Batch(observation, observation.clone(), rest.long(), rest, rest, rest + 1.0)


def trial(net: nn.Module, batch: Batch, params: ApeXDQNParameters) -> None:
    """One update of this job without its optimiser step; leaves no gradient behind."""
    loss(net, net, batch, double=params.double, kind=params.loss).value.backward()  # type: ignore[no-untyped-call]
    net.zero_grad()


# -------------------------------------------------------------------------------------------------------------- learning


def importance_weights(probability: NDArray[np.floating[Any]], exponent: float) -> NDArray[np.float32]:
    """``(N P)^-beta``, divided by the largest of the batch: float32 [B] in (0, 1].

    ``probability`` float64 [B] is each item's chance in one draw over everything stored, in whatever shard (Schaul et al. 2016,
    3.4; the maximum is over the batch, as in Ape-X and SEED, not over the buffer). The number N of stored items cancels in that
    division. ``exponent`` is beta; 0 gives ones.
    """
    weight = np.power(np.asarray(probability, np.float64), -exponent)
    relative: NDArray[np.float32] = (weight / weight.max()).astype(np.float32)
    return relative


def targets(online: nn.Module, target: nn.Module, batch: Batch, *, double: bool) -> Tensor:
    """``R + discount * Q_target(s', a*)`` float32 [B], without a gradient.

    ``a*`` is the online network's choice when ``double`` (van Hasselt et al. 2016), else the target network's own. A zero
    discount (termination) removes the bootstrap; a truncated window keeps it.
    """
    with torch.no_grad():
        bootstrap: Tensor = target(batch.next_observation)
        chosen = (online(batch.next_observation) if double else bootstrap).argmax(dim=1, keepdim=True)
        return batch.n_step_return + batch.discount * bootstrap.gather(1, chosen).squeeze(1)


def loss(online: nn.Module, target: nn.Module, batch: Batch, *, double: bool = True, kind: str = "Huber") -> Loss:
    """Importance-weighted mean of the Huber (delta 1) or half squared temporal-difference error of a batch."""
    wanted = targets(online, target, batch, double=double)
    values: Tensor = online(batch.observation)
    taken = values.gather(1, batch.action.unsqueeze(1)).squeeze(1)
    if kind == "Huber":
        each = functional.smooth_l1_loss(taken, wanted, reduction="none")
    elif kind == "MSE":
        each = 0.5 * (taken - wanted).square()
    else:
        raise ValueError(f"loss is {kind!r}; it can be Huber or MSE")
    detached = taken.detach()
    metrics = {"q_taken": detached.mean()}
    return Loss((batch.weight * each).mean(), (wanted - detached).abs(), metrics)


def pieces(batch: Batch, count: int, params: ApeXDQNParameters) -> list[Piece]:
    """``batch`` in at most ``count`` pieces of about equal size."""
    found = slices(len(batch.action), count)
    return [Piece(Batch(*(tensor[which] for tensor in batch)), share, share) for which, share in found]


def joined(losses: Sequence[Loss], pieces: Sequence[Piece]) -> Loss:
    """The loss of a batch from the losses of its pieces, added up in their order; detached."""
    value = sum(loss.value.detach() * piece.weight for loss, piece in zip(losses, pieces, strict=True))
    metrics = {
        name: sum(loss.metrics[name] * piece.share for loss, piece in zip(losses, pieces, strict=True))
        for name in losses[0].metrics
    }
    return Loss(value, torch.cat([loss.td_abs for loss in losses]), metrics)  # type: ignore[arg-type]


def priorities(td_abs: Tensor) -> Tensor:
    """New priorities float32 [B] of a batch that has been learned from: ``|td| + 1e-3``, the rule the actors use too."""
    return td_abs + PRIORITY_OFFSET

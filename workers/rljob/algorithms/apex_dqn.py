"""Ape-X DQN (Horgan et al. 2018): double, dueling, n-step Q-learning from prioritized replay, acted by a ladder of epsilons.

Read from top to bottom, this is the whole algorithm: the network, how an actor acts, and how a batch becomes a loss and the
errors that new priorities are made of. Pure functions on tensors of static shape; no sockets, no files, no clock.

Shapes: B batch, N environments, S frame stack, F frame shape, A actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rljob.algorithms.base import TransitionAlgorithm
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.decision import Decision, Game, Inference, RandomNumbers
from rljob.algorithms.loss_result import LossResult
from rljob.algorithms.q_network import QNetwork, QNetworkConfig
from rljob.api import ApeXDQNParameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rljob.api import EnvironmentParameters
    from rljob.envs.spec import EnvironmentSpec


class ApeXDQN(TransitionAlgorithm[ApeXDQNParameters, QNetwork]):
    """What each method has to do is written in ``base``."""

    name = "ApeXDQN"
    parameters = ApeXDQNParameters
    metrics = ("q_taken",)

    def build(self, spec: EnvironmentSpec, params: ApeXDQNParameters, env_params: EnvironmentParameters) -> QNetwork:
        default_scale = 1.0 / 255.0 if np.dtype(spec.frame_dtype) == np.uint8 else 1.0
        return QNetwork(
            QNetworkConfig(
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

    # ------------------------------------------------------------------------------------------------------------ acting

    def output_size(self, params: ApeXDQNParameters, num_actions: int) -> int:
        return num_actions

    def infer(self, net: QNetwork, observation: Tensor | NDArray[Any], state: Tensor | NDArray[Any]) -> Inference:
        """Action values of N observations; the memory, of which there is none, comes back as it was."""
        return Inference(q_values(net, observation), torch.as_tensor(state))

    def decide(
        self,
        outputs: NDArray[np.float32],
        epsilon: NDArray[np.floating[Any]] | float,
        generator: RandomNumbers,
    ) -> Decision:
        """Epsilon-greedy actions from action values float32 [N, A], each environment with its own epsilon."""
        count, actions = outputs.shape
        greedy = outputs.argmax(axis=1)
        explores = generator.random(count) < epsilon
        action = np.where(explores, generator.integers(0, actions, count), greedy).astype(np.int64, copy=False)
        rows = np.arange(count)
        return Decision(action, outputs[rows, action], outputs[rows, greedy])

    def random_decision(self, num_envs: int, num_actions: int, generator: RandomNumbers) -> Decision:
        unknown = np.full(num_envs, np.nan, np.float32)
        return Decision(generator.integers(0, num_actions, num_envs), unknown, unknown)

    def state_values(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """max_a Q, float32 [N]."""
        best: NDArray[np.float32] = outputs.max(axis=1)
        return best

    def exploration(self, params: ApeXDQNParameters, slot: int, slots: int, num_envs: int) -> NDArray[np.float32]:
        """Epsilons float32 [N]: the environments of an actor take neighbouring rungs of the ladder.

        A slot outside the ladder (more actors than the job has slots) wraps around.
        """
        total = max(1, slots) * num_envs
        first = slot % max(1, slots) * num_envs
        rungs = [
            epsilon_ladder(first + i, total, params.epsilon_base, params.epsilon_exponent) for i in range(num_envs)
        ]
        return np.array(rungs, np.float32)

    # -------------------------------------------------------------------------------------------------------- evaluation

    def evaluation_action(
        self, params: ApeXDQNParameters, net: QNetwork, observation: NDArray[Any], games: Sequence[Game]
    ) -> NDArray[np.int64]:
        """The greedy action of each game; random ones are the scorer's business."""
        best: NDArray[np.int64] = q_values(net, observation).argmax(dim=1).cpu().numpy()
        return best

    def evaluation_epsilon(self, params: ApeXDQNParameters) -> float:
        return float(params.evaluation_epsilon)

    # ---------------------------------------------------------------------------------------------------------- learning

    def loss(
        self, params: ApeXDQNParameters, online: nn.Module, target: nn.Module, batch: TransitionBatch
    ) -> LossResult:
        """Importance-weighted mean of the Huber (delta 1) or half squared temporal-difference error of a batch."""
        wanted = targets(online, target, batch, double=params.double)
        values: Tensor = online(batch.observation)
        taken = values.gather(1, batch.action.unsqueeze(1)).squeeze(1)
        if params.loss == "Huber":
            each = functional.smooth_l1_loss(taken, wanted, reduction="none")
        else:
            each = 0.5 * (taken - wanted).square()
        detached = taken.detach()
        return LossResult((batch.weight * each).mean(), {"q_taken": detached.mean()}, td_abs=(wanted - detached).abs())


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


def targets(online: nn.Module, target: nn.Module, batch: TransitionBatch, *, double: bool) -> Tensor:
    """``R + discount * Q_target(s', a*)`` float32 [B], without a gradient.

    ``a*`` is the online network's choice when ``double`` (van Hasselt et al. 2016), else the target network's own. A zero
    discount (termination) removes the bootstrap; a truncated window keeps it.
    """
    with torch.no_grad():
        bootstrap: Tensor = target(batch.next_observation)
        chosen = (online(batch.next_observation) if double else bootstrap).argmax(dim=1, keepdim=True)
        return batch.n_step_return + batch.discount * bootstrap.gather(1, chosen).squeeze(1)

"""Ape-X DQN (Horgan et al. 2018): double, dueling, n-step Q-learning from prioritized replay, acted by a ladder of epsilons.

Read from top to bottom, this is the whole algorithm but for how an actor acts, which is in ``acting_rules``: the network, and
how a batch becomes a loss and the errors that new priorities are made of. Pure functions on tensors of static shape; no sockets,
no files, no clock.

Shapes: B batch, N environments, S frame stack, F frame shape, A actions.
"""

import torch
from torch import Tensor
from torch.nn import functional

from rljob.algorithms.acting_rules import ActionValueAlgorithm
from rljob.algorithms.apex_dqn import DECLARED
from rljob.algorithms.apex_dqn.network import QNetwork, QNetworkConfig
from rljob.algorithms.apex_dqn.parameters import ApeXDQNParameters
from rljob.algorithms.batches import LossResult, Observation, TransitionBatch
from rljob.api import EnvironmentParameters
from rljob.envs.spec import EnvironmentSpec


class ApeXDQN(ActionValueAlgorithm[ApeXDQNParameters, QNetwork]):
    """What each method has to do is written in ``base`` and ``acting_rules``."""

    name = "ApeXDQN"
    takes = DECLARED.takes
    parameters = ApeXDQNParameters
    metrics = ("q_taken",)

    def build(self, spec: EnvironmentSpec, params: ApeXDQNParameters, env_params: EnvironmentParameters) -> QNetwork:
        return QNetwork(
            QNetworkConfig(
                kind=str(params.network),
                spec=spec,
                env_params=env_params,
                dueling=params.dueling,
                hidden_units=params.hidden_units,
                layer_norm=params.layer_norm,
                own=params.network_parameters,
            )
        )

    def action_values(self, net: QNetwork, observation: Observation) -> Tensor:
        values: Tensor = net(observation)
        return values

    # ---------------------------------------------------------------------------------------------------------- learning

    def loss(self, params: ApeXDQNParameters, online: QNetwork, target: QNetwork, batch: TransitionBatch) -> LossResult:
        """Importance-weighted mean of the Huber (delta 1) or half squared temporal-difference error of a batch."""
        wanted = targets(online, target, batch, double=params.double)
        taken = online.choices.taken(online(batch.observation), batch.action)
        if params.loss == "Huber":
            each = functional.smooth_l1_loss(taken, wanted, reduction="none")
        else:
            each = 0.5 * (taken - wanted).square()
        detached = taken.detach()
        return LossResult((batch.weight * each).mean(), {"q_taken": detached.mean()}, td_abs=(wanted - detached).abs())


def targets(online: QNetwork, target: QNetwork, batch: TransitionBatch, *, double: bool) -> Tensor:
    """``R + discount * Q_target(s', a*)`` float32 [B], without a gradient.

    ``a*`` is the online network's choice when ``double`` (van Hasselt et al. 2016), else the target network's own. A zero
    discount (termination) removes the bootstrap; a truncated window keeps it.
    """
    with torch.no_grad():
        bootstrap: Tensor = target(batch.next_observation)
        chosen = online.choices.best(online(batch.next_observation) if double else bootstrap)
        return batch.n_step_return + batch.discount * online.choices.taken(bootstrap, chosen)

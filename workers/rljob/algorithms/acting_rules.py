"""How actors act by what a network gives: by action values (the best action, and by a ladder of epsilons any), or by Gaussians of
continuous numbers. What Q-learning of every kind has in common, and learning from replayed transitions of such numbers.

Shapes: N environments, C continuous numbers of an action, S frame stack, F frame shape.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rljob.algorithms.base import Game, Inference, TransitionAlgorithm
from rljob.algorithms.batches import Observation
from rljob.algorithms.trunk import FrameNetwork
from rljob.api.parameters import ActionValueParameterSet, TransitionParameterSet
from rljob.choices import Choices, RandomNumbers
from rljob.experience import Decision
from rljob.observation import each

P = TypeVar("P", bound=ActionValueParameterSet)
Network = TypeVar("Network", bound=FrameNetwork)


class ActionValueAlgorithm(TransitionAlgorithm[P, Network]):
    """Acts epsilon-greedily on ``action_values``; what is left to a subclass is the network, those values and the loss."""

    @abstractmethod
    def action_values(self, net: Network, observation: Observation) -> Tensor:
        """Action values float32 [N, A] of observations uint8|float32 [N, S, *F], which are only read."""

    def infer(self, net: Network, observation: Observation, state: Tensor | NDArray[Any]) -> Inference:
        """Action values of N observations; the memory, of which there is none, comes back as it was."""
        with torch.inference_mode():
            return Inference(self.action_values(net, each(torch.as_tensor, observation)), torch.as_tensor(state))

    def decide(
        self,
        outputs: NDArray[np.float32],
        epsilon: NDArray[np.floating[Any]] | float,
        generator: RandomNumbers,
        choices: Choices,
    ) -> Decision:
        """Epsilon-greedy actions from action values float32 [N, A], each environment with its own epsilon."""
        count = len(outputs)
        greedy = choices.best(outputs)
        explores = (generator.random(count) < epsilon).reshape(-1, *(1,) * (greedy.ndim - 1))
        action = np.where(explores, choices.uniform(count, generator), greedy).astype(np.int64, copy=False)
        return Decision(
            action, choices.taken(outputs, action).mean(axis=1), choices.taken(outputs, greedy).mean(axis=1)
        )

    def random_decision(self, num_envs: int, choices: Choices, generator: RandomNumbers) -> Decision:
        unknown = np.full(num_envs, np.nan, np.float32)
        return Decision(choices.uniform(num_envs, generator), unknown, unknown)

    def state_values(self, outputs: NDArray[np.float32], choices: Choices) -> NDArray[np.float32]:
        """max_a Q, float32 [N]."""
        best: NDArray[np.float32] = choices.largest(outputs).mean(axis=1)
        return best

    def exploration(self, params: P, slot: int, slots: int, num_envs: int) -> NDArray[np.float32]:
        """Epsilons float32 [N]: the environments of an actor take neighbouring rungs of the ladder.

        A slot outside the ladder (more actors than the job has slots) wraps around.
        """
        total = max(1, slots) * num_envs
        first = slot % max(1, slots) * num_envs
        rungs = [
            epsilon_ladder(first + i, total, params.epsilon_base, params.epsilon_exponent) for i in range(num_envs)
        ]
        return np.array(rungs, np.float32)

    def evaluation_action(
        self, params: P, net: Network, observation: Observation, games: Sequence[Game]
    ) -> NDArray[np.int64]:
        """The greedy action of each game; random ones are the scorer's business."""
        with torch.inference_mode():
            values = self.action_values(net, each(torch.as_tensor, observation))
            best: NDArray[np.int64] = net.choices.best(values).cpu().numpy()
        return best

    def evaluation_epsilon(self, params: P) -> float:
        return float(params.evaluation_epsilon)


def epsilon_ladder(index: int, total: int, base: float = 0.4, exponent: float = 7.0) -> float:
    """``base ** (1 + exponent * i / (N - 1))``: environment ``index`` of ``total`` explores less the higher its index.

    A single environment (``total`` 1) stands at the exploring end, ``base``. Raises ValueError for an index outside.
    """
    if not 0 <= index < total:
        raise ValueError(f"environment {index} is not on a ladder of {total}; an index from 0 to {total - 1} is")
    return float(base ** (1.0 + exponent * index / max(1, total - 1)))


GaussianP = TypeVar("GaussianP", bound=TransitionParameterSet)


class GaussianAlgorithm(TransitionAlgorithm[GaussianP, Network]):
    """What acts, ``build``'s network, gives float32 [N, 2 * C] of an observation: means, and logarithms of deviations. It
    explores by draws and is judged by the means. What is left to a subclass is the networks and the loss.

    Before the first update actions are uniform between -1 and 1.
    """

    takes = frozenset({"controls", "controls alone"})

    def infer(self, net: Network, observation: Observation, state: Tensor | NDArray[Any]) -> Inference:
        """The numbers of the policy; the memory, of which there is none, comes back as it was."""
        with torch.inference_mode():
            return Inference(net(each(torch.as_tensor, observation)), torch.as_tensor(state))

    def decide(
        self,
        outputs: NDArray[np.float32],
        epsilon: NDArray[np.floating[Any]] | float,
        generator: RandomNumbers,
        choices: Choices,
    ) -> Decision:
        """A draw for each environment; ``epsilon`` is not used. What it is worth only critics know."""
        _, gaussians = choices.split(outputs)
        assert gaussians is not None, "it acts by continuous numbers alone"
        return unjudged(gaussians.sample(choices.draws(len(outputs), generator)))

    def random_decision(self, num_envs: int, choices: Choices, generator: RandomNumbers) -> Decision:
        uniform = 2.0 * generator.random((num_envs, choices.controls)) - 1.0
        return unjudged(uniform.astype(np.float32))

    def state_values(self, outputs: NDArray[np.float32], choices: Choices) -> NDArray[np.float32]:
        """Not known where there are no critics."""
        return np.full(len(outputs), np.nan, np.float32)

    def evaluation_action(
        self, params: GaussianP, net: Network, observation: Observation, games: Sequence[Game]
    ) -> Any:
        """The means."""
        outputs = self.infer(net, observation, np.zeros((len(games), 2, 0), np.float32)).outputs
        return Choices((), controls=outputs.shape[1] // 2).mode(outputs.cpu().numpy())


def unjudged(control: NDArray[np.float32]) -> Decision:
    """What was done, [N, C], by an actor that does not know what it is worth."""
    unknown = np.full(len(control), np.nan, np.float32)
    return Decision(np.zeros((len(control), 0), np.int64), unknown, unknown, control=control)

"""Acting by continuous numbers that a network gives Gaussians for. What learning from replayed transitions of them has in common.

Shapes: N environments, C continuous numbers of an action, S frame stack, F frame shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rljob.algorithms.base import TransitionAlgorithm
from rljob.algorithms.batches import Observation
from rljob.algorithms.decision import Game, Inference
from rljob.algorithms.parameters import TransitionParameters
from rljob.algorithms.trunk import FrameNetwork
from rljob.choices import Choices, RandomNumbers
from rljob.experience import Decision
from rljob.observation import each

if TYPE_CHECKING:
    from numpy.typing import NDArray

P = TypeVar("P", bound=TransitionParameters)
Network = TypeVar("Network", bound=FrameNetwork)


class GaussianAlgorithm(TransitionAlgorithm[P, Network]):
    """What acts, ``build``'s network, gives float32 [N, 2 * C] of an observation: means, and logarithms of deviations. It
    explores by draws and is judged by the means. What is left to a subclass is the networks and the loss.

    Before the first update actions are uniform between -1 and 1.
    """

    takes = frozenset({"controls", "controls alone"})

    def output_size(self, params: P, num_actions: int) -> int:
        return num_actions

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

    def evaluation_action(self, params: P, net: Network, observation: Observation, games: Sequence[Game]) -> Any:
        """The means."""
        outputs = self.infer(net, observation, np.zeros((len(games), 2, 0), np.float32)).outputs
        return Choices((), controls=outputs.shape[1] // 2).mode(outputs.cpu().numpy())


def unjudged(control: NDArray[np.float32]) -> Decision:
    """What was done, [N, C], by an actor that does not know what it is worth."""
    unknown = np.full(len(control), np.nan, np.float32)
    return Decision(np.zeros((len(control), 0), np.int64), unknown, unknown, control=control)

"""The parameters of ApeXDQN: distributed, prioritized, double, dueling, n-step Q-learning (Horgan et al., 2018)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.mutability import never
from rljob.api.parameters import OF_THIS_NETWORK
from rljob.api.transition_parameters import STORED, ActionValueParameterSet
from rljob.api.types import Flag, Integer, JSONObject, Real, WordOrFactory


class ApeXDQNParameters(ActionValueParameterSet):
    """Hyper-parameters of ApeXDQN.

    A "step" is one action of one environment; an "update" is one optimiser step on one batch.
    """

    n_step: Annotated[int, Integer(1, 100), never(STORED)] = 3
    """Steps of reward before the bootstrap value."""
    batch_size: Annotated[int, Integer(1, 65_536)] = 512
    """Transitions a learner update is computed from."""
    optimizer_epsilon: Annotated[float, Real(0, 1, above=True)] = 1.5e-4
    """The number that keeps the optimiser's denominator from zero: beside the root with Adam, under it with RMSProp, as the
    published numbers mean it."""
    double: Flag = True
    """Choose the bootstrap action with the online network, judge it with the target network."""
    dueling: Annotated[Flag, never(OF_THIS_NETWORK)] = True
    """Split the head into a state value and action advantages."""
    network: Annotated[str, WordOrFactory(("Auto", "Nature", "Compact", "Small", "MLP")), never(OF_THIS_NETWORK)] = (
        "Auto"
    )
    """Nature: Mnih et al. 2015, for 84x84. Compact: two small convolutions, for 42x42. Small: one of 3x3, for grids of a few
    cells. MLP: for vectors. Auto chooses by the shape of a frame (docs/algorithms/networks.md)."""
    network_parameters: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Parameters of a network of your own."""
    hidden_units: Annotated[int, Integer(0, 16_384), never(OF_THIS_NETWORK)] = 0
    """Width of the hidden layer(s); 0 takes the network's own default."""
    layer_norm: Annotated[Flag, never(OF_THIS_NETWORK)] = False
    """Normalise each layer's features before its activation."""
    loss: Literal["Huber", "MSE"] = "Huber"
    """How a TD error becomes a loss."""

"""The parameters of ApeXDQN: distributed, prioritized, double, dueling, n-step Q-learning (Horgan et al., 2018)."""

from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.mutability import never
from rljob.api.parameters import OF_THIS_NETWORK, STORED, ActionValueParameterSet, Epsilon
from rljob.api.types import Flag, Integer, JSONObject, WordOrFactory


class ApeXDQNParameters(ActionValueParameterSet):
    """Hyper-parameters of ApeXDQN.

    A "step" is one action of one environment; an "update" is one optimiser step on one batch.
    """

    n_step: Annotated[int, Integer(1, 100), never(STORED)] = 3
    batch_size: Annotated[int, Integer(1, 65_536)] = 512
    optimizer_epsilon: Epsilon = 1.5e-4
    double: Flag = True
    """Choose the bootstrap action with the online network, judge it with the target network."""
    dueling: Annotated[Flag, never(OF_THIS_NETWORK)] = True
    """Split the head into a state value and action advantages."""
    network: Annotated[str, WordOrFactory(("Auto", "Nature", "Compact", "Small", "MLP")), never(OF_THIS_NETWORK)] = (
        "Auto"
    )
    network_parameters: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    hidden_units: Annotated[int, Integer(0, 16_384), never(OF_THIS_NETWORK)] = 0
    layer_norm: Annotated[Flag, never(OF_THIS_NETWORK)] = False
    loss: Literal["Huber", "MSE"] = "Huber"
    """Loss of a TD error."""

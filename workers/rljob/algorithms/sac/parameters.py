"""The parameters of SAC: soft actor-critic (Haarnoja et al., 2018), learned from replayed transitions."""

from math import log
from typing import Annotated, Any

from pydantic import Field

from rljob.api.fields import Follows
from rljob.api.mutability import never
from rljob.api.parameters import (
    OF_THIS_NETWORK,
    OF_THIS_SCALE,
    STORED,
    ClipNorm,
    Epsilon,
    LearningRate,
    TransitionParameterSet,
)
from rljob.api.types import Flag, Integer, JSONObject, Real, WordOrFactory


class SACParameters(TransitionParameterSet):
    """Hyper-parameters of SAC.

    A "step" is one action of one environment; an "update" moves critics, policy and temperature once, from one batch. How many
    updates a step there are is replay.rateLimiter.samplesPerInsert / batchSize: one, unless it is written.
    """

    n_step: Annotated[int, Integer(1, 100), never(STORED)] = 1
    learning_rate: LearningRate = 3e-4
    critic_learning_rate: Annotated[LearningRate, Follows("learningRate")] = Field(
        default_factory=lambda known: known.get("learning_rate", 3e-4)
    )
    """Initial step size of the critics' optimiser; it decays as learningRate does."""
    temperature: Annotated[float, Real(0)] | None = None
    """Worth of a nat of entropy, in units of the reward. Unset: learned, to keep the policy's entropy at targetEntropy.
    """
    initial_temperature: Annotated[float, Real(0, above=True)] = 1.0
    """Initial value of a learned temperature."""
    temperature_learning_rate: Annotated[LearningRate, Follows("learningRate")] = Field(
        default_factory=lambda known: known.get("learning_rate", 3e-4)
    )
    """Initial step size for the logarithm of a learned temperature; it decays as learningRate does."""
    target_entropy: Annotated[float, Real(-100_000, 100_000)] | None = None
    """Target entropy of a learned temperature, in nats, for actions scaled to [-1, 1]. Unset: minus the dimension of an action.
    """
    optimizer_epsilon: Epsilon = 1e-8
    gradient_clip_norm: ClipNorm = 0.0
    target_update_tau: Annotated[float, Real(0, 1)] = 0.005
    network: Annotated[str, WordOrFactory(("Auto", "Nature", "Compact", "Small", "MLP")), never(OF_THIS_NETWORK)] = (
        "Auto"
    )
    network_parameters: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    hidden_units: Annotated[int, Integer(1, 16_384), never(OF_THIS_NETWORK)] = 256
    layer_norm: Annotated[Flag, never(OF_THIS_NETWORK)] = False
    normalize_observations: Annotated[Flag, never(OF_THIS_SCALE)] = False
    normalize_returns: Annotated[Flag, never(OF_THIS_SCALE)] = False
    """Divide n-step returns by their deviation so far; critics, priorities and a learned temperature use these units.
    """
    chunk_length: Annotated[int, Integer(1, 1000), never(STORED)] = 10

    def unsuited(self, environment: Any) -> str:
        """A temperature that is learned grows without end where targetEntropy is more than an action can have."""
        most = environment.controls * log(2.0)
        if self.target_entropy is None or self.target_entropy < most:
            return ""
        return (
            f"targetEntropy is {self.target_entropy:g}, but an action of {environment.controls} numbers from -1 to 1 has at most "
            f"{most:.3g} nats, log 2 for each, and the temperature would grow without end; unset it is {-environment.controls}"
        )

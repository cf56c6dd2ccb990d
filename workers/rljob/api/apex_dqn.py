"""The parameters of ApeXDQN: distributed, prioritized, double, dueling, n-step Q-learning (Horgan et al., 2018)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.mutability import never
from rljob.api.parameters import OF_THIS_NETWORK, ParameterSet
from rljob.api.types import Flag, Integer, JSONObject, Real, WordOrFactory

STORED = "stored experience was made with it"


class ApeXDQNParameters(ParameterSet):
    """Hyper-parameters of ApeXDQN.

    A "step" is one action of one environment; an "update" is one optimiser step on one batch.
    """

    gamma: Annotated[float, Real(0, 1)] = 0.99
    """What a reward one step later is worth: the discount per step."""
    n_step: Annotated[int, Integer(1, 100), never(STORED)] = 3
    """Steps of reward before the bootstrap value."""
    batch_size: Annotated[int, Integer(1, 65_536)] = 512
    """Transitions a learner update is computed from."""
    learning_rate: Annotated[float, Real(0, 1, above=True)] = 1e-4
    """Step size of the optimiser at the start."""
    learning_rate_final: Annotated[float, Real(0, 1)] = Field(
        default_factory=lambda known: known.get("learning_rate", 0.0)
    )
    """Step size at the end of the linear decay."""
    learning_rate_decay_steps: Annotated[int, Integer(0)] = 0
    """Steps (of all environments) over which the learning rate falls; 0 keeps it constant."""
    optimizer: Literal["Adam", "RMSProp", "CentredRMSProp"] = "Adam"
    """Which optimiser. CentredRMSProp divides by the gradient's deviation, RMSProp by its root mean square. Changed while a job
    is suspended, its moments begin anew."""
    optimizer_epsilon: Annotated[float, Real(0, 1, above=True)] = 1.5e-4
    """The number that keeps the optimiser's denominator from zero: beside the root with Adam, under it with RMSProp, as the
    published numbers mean it."""
    rmsprop_decay: Annotated[float, Real(0, 1, below=True)] = 0.95
    """Decay of RMSProp's running means; Adam does not use it."""
    gradient_clip_norm: Annotated[float, Real(0)] = 40.0
    """Largest gradient norm; longer gradients are scaled to it. 0 does not clip."""
    target_update_interval: Annotated[int, Integer(0)] = 2500
    """Updates between copies of the online network to the target network; 0, with targetUpdateTau, never copies it."""
    target_update_tau: Annotated[float, Real(0, 1)] = 0.0
    """Share of the online network that the target takes over at each update; 0 copies at intervals instead."""
    double: Flag = True
    """Choose the bootstrap action with the online network, judge it with the target network."""
    dueling: Annotated[Flag, never(OF_THIS_NETWORK)] = True
    """Split the head into a state value and action advantages."""
    network: Annotated[str, WordOrFactory(("Auto", "Nature", "Compact", "Small", "MLP")), never(OF_THIS_NETWORK)] = (
        "Auto"
    )
    """Nature: Mnih et al. 2015, for 84x84. Compact: two small convolutions, for 42x42. Small: one of 3x3, for grids of a few
    cells. MLP: for vectors. Auto chooses by the shape of a
    frame (docs/algorithms/networks.md)."""
    network_parameters: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Parameters of a network of your own."""
    hidden_units: Annotated[int, Integer(0, 16_384), never(OF_THIS_NETWORK)] = 0
    """Width of the hidden layer(s); 0 takes the network's own default."""
    layer_norm: Annotated[Flag, never(OF_THIS_NETWORK)] = False
    """Normalise each layer's features before its activation."""
    loss: Literal["Huber", "MSE"] = "Huber"
    """How a TD error becomes a loss."""
    epsilon_base: Annotated[float, Real(0, 1)] = 0.4
    """Environment i of N explores with base^(1 + exponent * i / (N - 1))."""
    epsilon_exponent: Annotated[float, Real(0, 100)] = 7.0
    """How steeply exploration falls from the first environment to the last; 0 gives every environment epsilonBase."""
    evaluation_epsilon: Annotated[float, Real(0, 1)] = 0.01
    """Share of random actions while a policy is judged."""
    evaluation_weights_decay: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Per-update decay of the moving average of the weights that evaluations use; 0 judges the online weights."""
    chunk_length: Annotated[int, Integer(1, 1000), never(STORED)] = 50
    """Steps that an actor sends at once."""
    precision: Literal["Auto", "FP32", "TF32", "BF16", "FP16"] = "Auto"
    """Arithmetic of an update; Auto measures. TF32 and FP16 (loss scaled): on a GPU, else FP32."""
    compile: Flag | None = None
    """true: torch.compile an update. Unless false, a GPU replays a CUDA graph if faster."""
    publish_interval: Annotated[int, Integer(1)] = 10
    """Updates between two versions of the weights sent to the actors."""
    prefetch_batches: Annotated[int, Integer(1, 64)] = 2
    """Batches the learner asks for ahead of use."""
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 1
    """Seed of networks, exploration, sampling and environments."""

    @property
    def rmsprop_momentum(self) -> float:
        """The published agent has none."""
        return 0.0

    @property
    def greedy_epsilon(self) -> float:
        """Episodes played with an epsilon of at most this count for the job's mean return: the greedier half of the ladder."""
        # The middle of the ladder base ** (1 + exponent * i / (N - 1)); with one step there is only the base itself.
        return float(self.epsilon_base ** (1.0 + 0.5 * self.epsilon_exponent) * (1.0 + 1e-6))

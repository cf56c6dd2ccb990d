"""The parameters of SAC: soft actor-critic (Haarnoja et al., 2018), learned from replayed transitions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.apex_dqn import STORED
from rljob.api.mutability import never
from rljob.api.parameters import OF_THIS_NETWORK, ParameterSet
from rljob.api.types import Flag, Integer, JSONObject, Real, WordOrFactory


class SACParameters(ParameterSet):
    """Hyper-parameters of SAC.

    A "step" is one action of one environment; an "update" moves critics, policy and temperature once, from one batch. How many
    updates a step there are is replay.rateLimiter.samplesPerInsert / batchSize: one, unless it is written.
    """

    gamma: Annotated[float, Real(0, 1)] = 0.99
    """What a reward one step later is worth: the discount per step."""
    n_step: Annotated[int, Integer(1, 100), never(STORED)] = 1
    """Steps of reward before the bootstrap value. The entropies between are left out."""
    batch_size: Annotated[int, Integer(1, 65_536)] = 256
    """Transitions an update is computed from."""
    learning_rate: Annotated[float, Real(0, 1, above=True)] = 3e-4
    """Step size of the policy's optimiser at the start."""
    learning_rate_final: Annotated[float, Real(0, 1)] = Field(
        default_factory=lambda known: known.get("learning_rate", 0.0)
    )
    """Step size at the end of the linear decay."""
    learning_rate_decay_steps: Annotated[int, Integer(0)] = 0
    """Steps (of all environments) over which the learning rate falls; 0 keeps it constant."""
    critic_learning_rate: Annotated[float, Real(0, 1, above=True)] = Field(
        default_factory=lambda known: known.get("learning_rate", 3e-4)
    )
    """Step size of the critics' optimiser at the start; it decays as learningRate does."""
    temperature: Annotated[float, Real(0)] | None = None
    """What a nat of entropy is worth, in units of the reward. Unset, it is learned: as much as holds the policy's entropy at
    targetEntropy."""
    initial_temperature: Annotated[float, Real(0, above=True)] = 1.0
    """A learned temperature at the start."""
    temperature_learning_rate: Annotated[float, Real(0, 1, above=True)] = Field(
        default_factory=lambda known: known.get("learning_rate", 3e-4)
    )
    """Step size of the optimiser of a learned temperature's logarithm; it decays as learningRate does."""
    target_entropy: Annotated[float, Real(-100_000, 100_000)] | None = None
    """Entropy in nats that a learned temperature steers to, of an action whose numbers reach from -1 to 1. Unset: minus how many
    numbers an action has."""
    optimizer: Literal["Adam", "RMSProp", "CentredRMSProp"] = "Adam"
    """Which optimiser, one each for critics, policy and temperature. Changed while a job is suspended, its moments begin anew."""
    optimizer_epsilon: Annotated[float, Real(0, 1, above=True)] = 1e-8
    """The number that keeps the optimiser's denominator from zero: beside the root with Adam, under it with RMSProp."""
    rmsprop_decay: Annotated[float, Real(0, 1, below=True)] = 0.95
    """Decay of RMSProp's running means; Adam does not use it."""
    gradient_clip_norm: Annotated[float, Real(0)] = 0.0
    """Largest gradient norm, of critics, policy and temperature each; longer gradients are scaled to it. 0 does not clip."""
    target_update_tau: Annotated[float, Real(0, 1, above=True)] = 0.005
    """Share of the critics that their targets take over at each update."""
    network: Annotated[str, WordOrFactory(("Auto", "Nature", "Compact", "Small", "MLP")), never(OF_THIS_NETWORK)] = (
        "Auto"
    )
    """MLP: for vectors. Nature, Compact and Small: for images, as with ApeXDQN; policy and critics have one each. Auto chooses by
    the shape of a frame (docs/algorithms/networks.md)."""
    network_parameters: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Parameters of a network of your own."""
    hidden_units: Annotated[int, Integer(1, 16_384), never(OF_THIS_NETWORK)] = 256
    """Width of the two hidden layers of the policy, and of those of each critic."""
    layer_norm: Annotated[Flag, never(OF_THIS_NETWORK)] = False
    """Normalise the features of each hidden layer before its activation."""
    evaluation_weights_decay: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Per-update decay of the moving average of the weights that evaluations use; 0 judges the online weights."""
    chunk_length: Annotated[int, Integer(1, 1000), never(STORED)] = 10
    """Steps that an actor sends at once."""
    precision: Literal["Auto", "FP32", "TF32", "BF16", "FP16"] = "Auto"
    """Arithmetic of an update; Auto measures. TF32 and FP16 (loss scaled): on a GPU, else FP32."""
    compile: Flag | None = None
    """true: torch.compile an update. Unless false, a GPU replays a CUDA graph if faster."""
    publish_interval: Annotated[int, Integer(1)] = 10
    """Updates between two versions of the policy sent to the actors."""
    prefetch_batches: Annotated[int, Integer(1, 64)] = 2
    """Batches the learner asks for ahead of use."""
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 1
    """Seed of networks, exploration, sampling and environments."""

    @property
    def rmsprop_momentum(self) -> float:
        """None is offered."""
        return 0.0

    @property
    def target_update_interval(self) -> int:
        """The targets follow little by little."""
        return 0

    @property
    def greedy_epsilon(self) -> float:
        """All episodes count for the job's mean return."""
        return 1.0

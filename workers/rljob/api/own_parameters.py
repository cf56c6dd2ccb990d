"""Bases of the parameters of an algorithm of one's own: what the loops read of every one, each with a default to be replaced.

A subclass adds fields of its own, or gives one of these another default by writing it again.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rljob.api.impala import UnrollQueue
from rljob.api.parameters import ParameterSet
from rljob.api.types import Flag, Integer, Real


class _LearnerParameterSet(ParameterSet):
    gamma: Annotated[float, Real(0, 1)] = 0.99
    """What a reward one step later is worth: the discount per step."""
    learning_rate: Annotated[float, Real(0, 1, above=True)] = 1e-4
    """Step size of the optimiser at the start."""
    learning_rate_final: Annotated[float, Real(0, 1)] = Field(
        default_factory=lambda known: known.get("learning_rate", 0.0)
    )
    """Step size at the end of the linear decay; unset, that of the start."""
    learning_rate_decay_steps: Annotated[int, Integer(0)] = 0
    """Steps (of all environments) over which the learning rate falls; 0 keeps it constant."""
    optimizer: Literal["Adam", "RMSProp", "CentredRMSProp"] = "Adam"
    """Which optimiser. CentredRMSProp divides by the gradient's deviation, RMSProp by its root mean square."""
    optimizer_epsilon: Annotated[float, Real(0, 1, above=True)] = 1e-5
    """The number that keeps the optimiser's denominator from zero: beside the root with Adam, under it with RMSProp."""
    rmsprop_decay: Annotated[float, Real(0, 1, below=True)] = 0.95
    """Decay of RMSProp's running means; Adam does not use it."""
    rmsprop_momentum: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Momentum of RMSProp; Adam does not use it."""
    gradient_clip_norm: Annotated[float, Real(0)] = 40.0
    """Largest gradient norm; longer gradients are scaled to it. 0 does not clip."""
    evaluation_weights_decay: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Per-update decay of the moving average of the weights that evaluations use; 0 judges the online weights."""
    publish_interval: Annotated[int, Integer(1)] = 10
    """Updates between two versions of the weights sent to the actors."""
    prefetch_batches: Annotated[int, Integer(1, 64)] = 2
    """Batches the learner asks for ahead of use."""
    precision: Literal["Auto", "FP32", "TF32", "BF16", "FP16"] = "Auto"
    """Arithmetic of an update; Auto measures. TF32 and FP16 (loss scaled): on a GPU, else FP32."""
    compile: Flag | None = None
    """true: torch.compile an update. Unless false, a GPU replays a CUDA graph if faster."""
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 1
    """Seed of networks, exploration, sampling and environments."""


class TransitionParameterSet(_LearnerParameterSet):
    """Parameters of a ``TransitionAlgorithm``, which learns from n-step transitions out of spec.replay."""

    batch_size: Annotated[int, Integer(1, 65_536)] = 256
    """Transitions a learner update is computed from."""
    n_step: Annotated[int, Integer(1, 100)] = 1
    """Steps of reward before the bootstrap value."""
    chunk_length: Annotated[int, Integer(1, 1000)] = 50
    """Steps that an actor sends at once."""
    target_update_tau: Annotated[float, Real(0, 1)] = 0.0
    """Share of the online network that the target takes over at each update; 0 copies at intervals instead."""
    target_update_interval: Annotated[int, Integer(0)] = Field(
        default_factory=lambda known: 0 if known.get("target_update_tau") else 2500
    )
    """Updates between copies of the online network to the target network; unset, 2500, or 0 with targetUpdateTau."""

    @property
    def greedy_epsilon(self) -> float:
        """Episodes played with an exploration of at most this count for the job's mean return: all, unless it is overridden."""
        return 1.0


class ActionValueParameterSet(TransitionParameterSet):
    """Parameters of an ``ActionValueAlgorithm``, which acts by the best action value, and by a ladder of epsilons at random."""

    epsilon_base: Annotated[float, Real(0, 1)] = 0.4
    """Environment i of N explores with base^(1 + exponent * i / (N - 1))."""
    epsilon_exponent: Annotated[float, Real(0, 100)] = 7.0
    """See epsilonBase; 0 gives every environment epsilonBase."""
    evaluation_epsilon: Annotated[float, Real(0, 1)] = 0.01
    """Share of random actions while a policy is judged."""

    @property
    def greedy_epsilon(self) -> float:
        """The greedier half of the ladder counts."""
        return float(self.epsilon_base ** (1.0 + 0.5 * self.epsilon_exponent) * (1.0 + 1e-6))


class UnrollParameterSet(_LearnerParameterSet):
    """Parameters of an ``UnrollAlgorithm``, which learns from unrolls, once or in several passes, out of the learner's queue."""

    batch_size: Annotated[int, Integer(1, 4096)] = 32
    """Unrolls that make one batch."""
    unroll_length: Annotated[int, Integer(1, 1000)] = 20
    """Steps of one environment that are sent and learned from as one sequence."""
    publish_interval: Annotated[int, Integer(1)] = 1
    """Updates between two versions of the weights sent to the actors."""
    unroll_queue: UnrollQueue = Field(
        default_factory=lambda known: UnrollQueue(capacity=max(64, 2 * known.get("batch_size", 1)))
    )
    """Where unrolls wait for the learner, and how old they may become; capacity is at least batchSize."""

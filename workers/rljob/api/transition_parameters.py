"""What algorithms that learn from replayed transitions are set by: bases of the parameters of built-in ones and of one's own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rljob.api.fields import Follows
from rljob.api.learner_parameters import LearnerParameterSet
from rljob.api.mutability import never
from rljob.api.types import Integer, Real

STORED = "stored experience was made with it"


class TransitionParameterSet(LearnerParameterSet):
    """Parameters of a ``TransitionAlgorithm``, which learns from n-step transitions out of spec.replay."""

    gamma: Annotated[float, Real(0, 1), never(STORED)] = 0.99
    batch_size: Annotated[int, Integer(1, 65_536)] = 256
    """Transitions that an update is computed from."""
    n_step: Annotated[int, Integer(1, 100), never(STORED)] = 1
    """Steps of reward before the bootstrap value; SAC leaves out the entropies between."""
    chunk_length: Annotated[int, Integer(1, 1000), never(STORED)] = 50
    """Steps that an actor sends at once."""
    publish_interval: Annotated[int, Integer(1)] = 10
    """Updates between two versions of the weights sent to the actors."""
    prefetch_batches: Annotated[int, Integer(1, 64)] = 2
    """Batches the learner asks for ahead of use."""
    target_update_tau: Annotated[float, Real(0, 1)] = 0.0
    """Share of the online network (with SAC, of the critics) that the target takes over at each update; 0 copies at
    intervals instead."""
    target_update_interval: Annotated[int, Integer(0), Follows("2500; 0 with targetUpdateTau")] = Field(
        default_factory=lambda known: 0 if known.get("target_update_tau") else 2500
    )
    """Updates between copies of the online network to the target network."""


class ActionValueParameterSet(TransitionParameterSet):
    """Parameters of an ``ActionValueAlgorithm``, which acts by the best action value, and by a ladder of epsilons at random."""

    epsilon_base: Annotated[float, Real(0, 1)] = 0.4
    """Environment i of N explores with base^(1 + exponent * i / (N - 1))."""
    epsilon_exponent: Annotated[float, Real(0, 100)] = 7.0
    """How steeply exploration falls from the first environment to the last; 0 gives every environment epsilonBase."""
    evaluation_epsilon: Annotated[float, Real(0, 1)] = 0.01
    """Share of random actions while a policy is judged."""

"""What every learner is set by, whatever it learns: the base of the parameters of all algorithms, of those of one's own, too.

A subclass adds fields of its own, or gives one of these another default by writing it again; the words of a field are inherited.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from rljob.api.fields import Follows
from rljob.api.mutability import UNLEARNED
from rljob.api.parameters import ParameterSet
from rljob.api.types import Flag, Integer, Real

OptimizerName: TypeAlias = Literal["Adam", "RMSProp", "CentredRMSProp", "Muon"]
LearningRate: TypeAlias = Annotated[float, Real(0, 1, above=True)]
Epsilon: TypeAlias = Annotated[float, Real(0, 1, above=True)]


class LearnerParameterSet(ParameterSet):
    """What the loops read of every algorithm's parameters (``rljob.algorithms.parameters``), but for its batches."""

    gamma: Annotated[float, Real(0, 1)] = 0.99
    """What a reward one step later is worth: the discount per step."""
    learning_rate: LearningRate = 1e-4
    """Step size of the optimiser at the start; with SAC, of the policy's."""
    learning_rate_final: Annotated[float, Real(0, 1), Follows("learningRate, so that it does not decay")] = Field(
        default_factory=lambda known: known.get("learning_rate", 0.0)
    )
    """Step size at the end of the linear decay."""
    learning_rate_decay_steps: Annotated[int, Integer(0)] = 0
    """Steps (of all environments) over which the learning rate falls; 0 keeps it constant."""
    optimizer: OptimizerName = "Adam"
    """Which optimiser. CentredRMSProp divides by the gradient's deviation, RMSProp by its root mean square; Muon makes the
    momentum of matrices orthogonal, and Adam moves all else. Changed while a job is suspended, its moments begin anew."""
    optimizer_epsilon: Epsilon = 1e-5
    """The number that keeps the optimiser's denominator from zero: beside the root with Adam, under it with RMSProp, as the
    published numbers mean it."""
    rmsprop_decay: Annotated[float, Real(0, 1, below=True)] = 0.95
    """Decay of RMSProp's running means; Adam does not use it."""
    rmsprop_momentum: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Momentum of RMSProp; Adam does not use it."""
    gradient_clip_norm: Annotated[float, Real(0)] = 40.0
    """Largest gradient norm; longer gradients are scaled to it. 0 does not clip. With SAC, of critics, policy and
    temperature each."""
    evaluation_weights_decay: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Per-update decay of the moving average of the weights that evaluations use; 0 judges the online weights."""
    precision: Literal["Auto", "FP32", "TF32", "BF16", "FP16"] = "Auto"
    """Arithmetic of an update; Auto measures. TF32 and FP16 (loss scaled): on a GPU, else FP32."""
    compile: Annotated[Flag | None, UNLEARNED] = None
    """true: torch.compile an update. Unset: a CUDA graph, or on one machine's CPU a compiled short update, if faster."""

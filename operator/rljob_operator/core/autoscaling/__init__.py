"""The autoscaler: a pure function from the learner's figures to a number of actors. See ``docs/autoscaling.md``."""

from rljob_operator.core.autoscaling.advance import Recommendation, advance
from rljob_operator.core.autoscaling.limits import Calculation
from rljob_operator.core.autoscaling.memory import AutoscalingMemory
from rljob_operator.core.autoscaling.model import ActiveReason, LimitedBy, ScalingSample, Supply

__all__ = [
    "ActiveReason",
    "AutoscalingMemory",
    "Calculation",
    "LimitedBy",
    "Recommendation",
    "ScalingSample",
    "Supply",
    "advance",
]

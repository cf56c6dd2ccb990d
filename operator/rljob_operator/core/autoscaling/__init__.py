"""The autoscaler: a pure function from the learner's figures to a number of actors. See ``docs/autoscaling.md``."""

from rljob_operator.core.autoscaling.advance import advance
from rljob_operator.core.autoscaling.memory import AutoscalingMemory
from rljob_operator.core.autoscaling.model import ActiveReason, LimitedBy, ScalingSample, Supply
from rljob_operator.core.autoscaling.recommendation import Calculation, Recommendation
from rljob_operator.core.autoscaling.victims import ActorView, choose_victims

__all__ = [
    "ActiveReason",
    "ActorView",
    "AutoscalingMemory",
    "Calculation",
    "LimitedBy",
    "Recommendation",
    "ScalingSample",
    "Supply",
    "advance",
    "choose_victims",
]

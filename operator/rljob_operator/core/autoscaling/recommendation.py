"""The autoscaler's answer, with the numbers of the calculation behind it."""

from dataclasses import dataclass

from rljob_operator.core.autoscaling.law import Match
from rljob_operator.core.autoscaling.limits import ReplicaLimits
from rljob_operator.core.autoscaling.memory import AutoscalingMemory
from rljob_operator.core.autoscaling.model import LimitedBy


@dataclass(frozen=True, slots=True)
class Calculation:
    """Every number that one decision was made of.

    Attributes:
        before, after: actors wanted before and after it. With mode External ``after`` is what is recommended.
        match: the law's terms.
        tolerance: a difference below it between what is wanted and ``before`` changes nothing; actors.
        target: the whole number aimed for. limits: what may become of it.
    """

    before: int
    match: Match
    tolerance: float
    target: int
    limits: ReplicaLimits
    after: int


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer.

    Attributes:
        desired: how many actors there should be.
        recommended: None before there are figures. Internal: what the law alone asks for, not rounded. External: the number to
            ask for.
        limited_by: the rule between the two; External: the bound that the number asked for was brought within.
        last_decision: one sentence from whose numbers the decision can be recomputed by hand.
        is_new: whether ``last_decision`` was made in this call. It is repeated between decisions.
        calculation: of a new decision, all its numbers; None where the number was held or a user changed it.
        memory: to be handed back at the next call.
    """

    desired: int
    recommended: float | None
    limited_by: LimitedBy
    last_decision: str
    is_new: bool
    calculation: Calculation | None
    memory: AutoscalingMemory

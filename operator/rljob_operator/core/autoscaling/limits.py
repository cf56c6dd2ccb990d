"""What may change the number that is aimed for: bounds, the stabilization window, guards, the pace, pause, in this order."""

from dataclasses import dataclass

from rljob.api.roles import AutoscalingSpec

from rljob_operator.core.autoscaling import guards, pace
from rljob_operator.core.autoscaling.law import Match
from rljob_operator.core.autoscaling.memory import AutoscalingMemory
from rljob_operator.core.autoscaling.model import LimitedBy, Supply


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """The limits of one decision, in numbers of actors; None sets no limit.

    Attributes:
        min_replicas, max_replicas: the bounds, as far as the place and the queue allow.
        most_wanted: within the stabilization window: a shrinking goes no further.
        guard, guard_most: the guard that speaks and the most it allows.
        policy_least, policy_most: what one decision may lead to.
        pause: ``spec.autoscaling.pause``.
    """

    min_replicas: int | None = None
    max_replicas: int | None = None
    most_wanted: int | None = None
    guard: LimitedBy = LimitedBy.NOTHING
    guard_most: int | None = None
    policy_least: int | None = None
    policy_most: int | None = None
    pause: str = "None"


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
class Limited:
    """A number on its way through the limits and the last of them that changed it."""

    number: int
    by: LimitedBy = LimitedBy.NOTHING

    def to(self, number: int, by: LimitedBy) -> "Limited":
        """The number changed by a rule; itself where the rule changes nothing."""
        return self if number == self.number else Limited(number, by)

    def at_least(self, number: int | None, by: LimitedBy) -> "Limited":
        """Not below ``number``."""
        return self if number is None else self.to(max(self.number, number), by)

    def at_most(self, number: int | None, by: LimitedBy) -> "Limited":
        """Not above ``number``."""
        return self if number is None else self.to(min(self.number, number), by)

    def within(self, least: int | None, most: int | None) -> "Limited":
        """Kept within the bounds minReplicas and maxReplicas."""
        return self.at_most(most, LimitedBy.MAX_REPLICAS).at_least(least, LimitedBy.MIN_REPLICAS)


def bounded(spec: AutoscalingSpec, limited: Limited) -> Limited:
    """Kept within minReplicas and maxReplicas."""
    return limited.within(spec.min_replicas, spec.max_replicas)


def limits_now(
    spec: AutoscalingSpec,
    memory: AutoscalingMemory,
    supply: Supply,
    target: int,
    match: Match,
    now_seconds: float,
) -> ReplicaLimits:
    """The limits on going to ``target``.

    With mode External only the guards and the pause: bounds, window and pace are those of the client that writes the number.
    After a gap in the watch nothing shrinks before one whole window has been seen.
    """
    current = memory.desired or 0
    most, guard = guards.most_allowed(memory.guards, match, supply, current, now_seconds)
    if spec.mode == "External":
        return ReplicaLimits(guard=guard, guard_most=most, pause=spec.pause)
    most_wanted = pace.most_wanted(memory, bounded(spec, Limited(target)).number, now_seconds)
    if now_seconds - (memory.watching_since_seconds or now_seconds) < pace.STABILIZATION_SECONDS:
        most_wanted = max(most_wanted, current)
    return ReplicaLimits(
        min_replicas=spec.min_replicas,
        max_replicas=spec.max_replicas,
        most_wanted=most_wanted,
        guard=guard,
        guard_most=most,
        policy_least=pace.least_after(current),
        policy_most=pace.most_after(current),
        pause=spec.pause,
    )


def through(limits: ReplicaLimits, target: int, current: int) -> Limited:
    """What the limits make of ``target``."""
    limited = Limited(target).within(limits.min_replicas, limits.max_replicas)
    if limits.most_wanted is not None and limited.number < current:
        limited = limited.to(min(current, limits.most_wanted), LimitedBy.SCALE_DOWN_STABILIZATION)
    limited = limited.at_most(limits.guard_most, limits.guard)
    limited = limited.at_most(limits.policy_most, LimitedBy.SCALE_UP_POLICY)
    limited = limited.at_least(limits.policy_least, LimitedBy.SCALE_DOWN_POLICY)
    if limits.pause in ("ScaleOut", "All"):
        limited = limited.at_most(current, LimitedBy.PAUSE)
    if limits.pause in ("ScaleIn", "All"):
        limited = limited.at_least(current, LimitedBy.PAUSE)
    return limited.within(limits.min_replicas, limits.max_replicas)

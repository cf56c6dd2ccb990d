"""How many actors there should be. `rules.places` says which ones."""

from dataclasses import replace

from rljob.api.conditions import Reason
from rljob.api.roles import AutoscalingSpec, ScalingTarget
from rljob.api.status import AutoscalingStatus, ScalingCalculation
from rljob.api.status_model import stamp

from rljob_operator.core.autoscaling.advance import advance
from rljob_operator.core.autoscaling.model import AutoscalingMemory, LimitedBy, ScalingSample, Supply
from rljob_operator.core.context import ReconcileContext, bounded
from rljob_operator.core.member import Phase, Role
from rljob_operator.core.rules import places, progress

LAW_SECONDS = 5.0
"""The law is asked at most so often, or every sample period where that is shorter: its memory is part of the status, and a status
that changed each time would be written each time."""

CREDIT_PERCENT = 50
"""Fill that the rate limiter's credit is steered to: as far from a waiting learner as from blocked actors."""


def wanted(context: ReconcileContext) -> ReconcileContext:
    """Decide the number of actors and write it into ``status.autoscaling``."""
    if context.spec.autoscaling.mode != "Disabled":
        return _by_law(context)
    asked = context.spec.actors.replicas
    number = min([asked, *_here(context)])
    runs = min([number, *context.quota()])
    limited = LimitedBy.NOTHING if runs == asked else LimitedBy.MAX_REPLICAS
    return _write(context, number, asked, limited, _fixed(context, runs), None, {})


def asked_for(context: ReconcileContext) -> ReconcileContext:
    """Show the number of actors that a job will begin with, while it is suspended or waits in its queue."""
    mode, number = context.spec.autoscaling.mode, min([context.spec.requested_actors, *_here(context)])
    if mode == "Internal" and context.status.autoscaling.desired_replicas:
        return context
    if mode != "Disabled":
        bounds = _limits(context)
        number = max(bounds.min_replicas, min(bounds.max_replicas, number))
    return context.with_status(autoscaling=context.status.autoscaling.model_copy(update={"desired_replicas": number}))


def _fixed(context: ReconcileContext, number: int) -> str:
    """The number of actors where the user has fixed it. It was asked for, so it runs, however many cores there are."""
    asked, cores = context.spec.actors.replicas, context.observed.cores
    updates = f"autoscaling.mode is Disabled: {number} actors"
    if number < asked:
        who = "the queue admits no more" if limited_by_quota(context) else "no more are allowed here"
        return f"{updates} of {asked} asked for, {who}"
    if cores is not None and number > cores:
        return f"{updates} as asked for, {oversubscribed(number, cores)}"
    return f"{updates} as asked for"


def oversubscribed(actors: int, cores: int) -> str:
    """A clause about more actors than cores."""
    return f"more than one for each of the {cores} cores: {actors} actors share them with the learner"


def _by_law(context: ReconcileContext) -> ReconcileContext:
    spec, status = _limits(context), context.status.autoscaling
    memory = remembered(status)
    if not _due(context, spec, memory):
        return context
    answer = advance(_aims(spec, context), memory, law_sample(context), _supply(context, memory), context.now)
    whole = answer.desired if answer.recommended is None else min(round(answer.recommended), 10**9)
    calculation = answer.calculation if answer.is_new else status.calculation
    limited = answer.limited_by
    least = max(answer.desired, context.spec.autoscaling.min_replicas)
    if min([answer.desired, *context.quota()]) < least:  # whatever the law aims for, there is no room for it
        limited, whole = LimitedBy.MAX_REPLICAS, max(whole, least)
    return _write(context, answer.desired, whole, limited, answer.last_decision, calculation, answer.memory.to_dict())


def _due(context: ReconcileContext, spec: AutoscalingSpec, memory: AutoscalingMemory) -> bool:
    """Whether time is up, or the user's number or the bounds changed."""
    seen, desired = memory.seen_seconds, memory.desired
    if seen is None or desired is None or memory.requested != context.spec.actors.replicas:
        return True
    requested_replicas = context.spec.actors.replicas if spec.mode == "External" else desired
    if desired != max(spec.min_replicas, min(spec.max_replicas, requested_replicas)):
        return True
    return not 0 <= context.now - seen < LAW_SECONDS


def remembered(status: AutoscalingStatus) -> AutoscalingMemory:
    """The law's memory; an unreadable one (written by a newer controller) starts anew at the desired number."""
    try:
        memory = AutoscalingMemory.from_dict(status.memory)
    except ValueError:
        memory = AutoscalingMemory()
    if memory.desired is None and status.desired_replicas > 0:
        memory = replace(memory, desired=status.desired_replicas)
    return memory


def _limits(context: ReconcileContext) -> AutoscalingSpec:
    """The spec with its bounds lowered to what the place and the queue allow.

    There may be more actors than cores for the sake of minReplicas. What a queue admits bounds the number that the law finds, and
    how many run of what a user or another autoscaler asks for (`context.allowed_actors`).
    """
    spec = context.spec.autoscaling
    least = min([spec.min_replicas, *_here(context)])
    quota = context.quota() if spec.mode == "Internal" else []
    most = max(least, min([spec.max_replicas, *_here(context), *quota, *_cores(context)]))
    if (least, most) == (spec.min_replicas, spec.max_replicas):
        return spec
    return spec.model_copy(update={"min_replicas": least, "max_replicas": most})


def _aims(spec: AutoscalingSpec, context: ReconcileContext) -> AutoscalingSpec:
    """The spec with the fill to steer to. With a replay, whose bounds follow from samplesPerInsert, users need not choose one."""
    if context.spec.replay is None:
        return spec
    return spec.model_copy(update={"target": ScalingTarget(queue_utilization_percent=CREDIT_PERCENT)})


def _here(context: ReconcileContext) -> list[int]:
    """The bound of `rljob run --max-actors`, where there is one."""
    return [] if context.observed.max_actors is None else [context.observed.max_actors]


def _cores(context: ReconcileContext) -> list[int]:
    return [] if context.observed.cores is None else [context.observed.cores]


def limited_by_quota(context: ReconcileContext) -> bool:
    """Whether the queue's quota is the lowest limit of the number."""
    quota, here = context.quota(), _here(context)
    if context.spec.autoscaling.mode == "Disabled":
        return bool(quota) and quota[0] <= min([*here, quota[0]])
    others = [cap + 1 for cap in (*here, *_cores(context))]
    return bool(quota) and quota[0] < min([context.spec.autoscaling.max_replicas, *others])


def law_sample(context: ReconcileContext) -> ScalingSample | None:
    """The learner's figures for the law; None where one that it needs is missing.

    With a replay the learner reports the transitions it samples; each that an actor inserts serves samplesPerInsert of them.
    """
    seen = context.observed.learner
    if seen is None:
        return None
    blocked_fraction, production_per_second = seen.actors_blocked_fraction, seen.production_per_second
    if context.status.autoscaling.memory.get("desired") == 0 and context.ready(Role.ACTOR) == 0:
        # Without actors no share of their time is known and nothing arrives; the learner's other figures still hold.
        blocked_fraction, production_per_second = blocked_fraction or 0.0, production_per_second or 0.0
    figures = (
        seen.learner_wait_fraction,
        blocked_fraction,
        seen.consumption_per_second,
        production_per_second,
        seen.queue_depth_batches,
        seen.queue_bound_batches,
    )
    algorithm = context.spec.algorithm
    batch_size = seen.batch_size if algorithm.type == "Custom" else algorithm.parameters.batch_size
    if batch_size is None or any(figure is None for figure in figures):
        return None
    wait, blocked, consumption, production, depth, bound = (float(figure or 0.0) for figure in figures)
    replay = context.spec.replay
    ratio = (replay.rate_limiter.samples_per_insert if replay is not None else 0.0) or 1.0
    return ScalingSample(
        taken_seconds=seen.taken_seconds,
        wait_fraction=wait,
        blocked_fraction=blocked,
        consumption_per_second=consumption / ratio,
        production_per_second=production,
        depth_batches=depth,
        bound_batches=bound,
        items_per_batch=batch_size / ratio,
        policy_lag_updates_p95=seen.policy_lag_updates_p95,
        lag_limit_updates=seen.lag_limit_updates,
        learner_advancing=progress.advancing(context) and seen.state != "Evaluating",
    )


def _supply(context: ReconcileContext, memory: AutoscalingMemory) -> Supply:
    pending = context.of(Role.ACTOR, Phase.STARTING, Phase.ABSENT)
    stuck = [m for m in pending if m.phase is Phase.ABSENT or m.waiting is Reason.UNSCHEDULABLE]  # no node, or no quota
    learner = next(iter(context.of(Role.LEARNER, Phase.READY)), None)
    started = None if learner is None else learner.ready_seconds or learner.since_seconds
    return Supply(
        ready=context.ready(Role.ACTOR),
        pending=len(pending) + len(context.failed(Role.ACTOR)) - len(places.without_place(context)),
        draining=context.count(Role.ACTOR, Phase.DRAINING),
        unschedulable_seconds=max((context.since(m.since_seconds) for m in stuck), default=0.0),
        learner_started_seconds=started,
        requested_replicas=context.spec.actors.replicas,
    )


def _write(
    context: ReconcileContext,
    number: int,
    recommended: int,
    limited: LimitedBy,
    decision: str,
    calculation: ScalingCalculation | None,
    memory: dict[str, object],
) -> ReconcileContext:
    before = context.status.autoscaling
    by_quota = limited is LimitedBy.MAX_REPLICAS and limited_by_quota(context)
    now = AutoscalingStatus.model_construct(
        desired_replicas=number,
        recommended_replicas=max(0, recommended),
        limited_by="Quota" if by_quota else limited.value,
        last_scale_time=stamp(context.now) if number != before.desired_replicas else before.last_scale_time,
        last_decision=bounded(decision),
        calculation=calculation,
        memory=memory,
    )
    if now == before:
        return context
    return context.with_status(autoscaling=now)


def scaling_reason(word: str) -> Reason:
    """The reason of ScalingLimited that belongs to ``status.autoscaling.limitedBy``."""
    return Reason.QUOTA_LIMITED if word == "Quota" else Reason(LimitedBy(word).reason)

"""When a job has succeeded (spec.successPolicy): the first criterion that is met ends it and names the reason."""

from collections.abc import Sequence

from rljob.api.conditions import Reason
from rljob.api.controller_memory import OutcomeMemory, PlateauMemory
from rljob.api.learner_status import LearnerStatus, Verdict
from rljob.api.lifecycle import SuccessPolicy, TargetMetric, TargetReturn

from rljob_operator.core.context import ReconcileContext, complete


def target_return(context: ReconcileContext) -> OutcomeMemory | None:
    """The mean of the last ``windowEvaluations`` full evaluations has reached ``targetReturn.value``."""
    target = context.spec.success_policy.target_return
    window = _window(context.observed.learner, target)
    if target is None or not window or (mean := sum(e.mean for e in window) / len(window)) < target.value:
        return None
    return complete(
        context,
        Reason.TARGET_RETURN_REACHED,
        f"mean return {mean:.2f} (standard error {window[-1].standard_error or 0.0:.2f}{window[-1].how_sure}) over "
        f"{_games(window)}; target {target.value:g}",
    )


def metric(context: ReconcileContext) -> OutcomeMemory | None:
    """The same of a number that the environment reports, which all games of these evaluations have."""
    target = context.spec.success_policy.metric
    window = _window(context.observed.learner, target)
    told = [e.metrics[target.name] for e in window if target is not None and not target.unreported(e)]
    if target is None or not told or len(told) < len(window) or (mean := sum(told) / len(told)) < target.value:
        return None
    return complete(
        context,
        Reason.METRIC_REACHED,
        f"{target.name} {mean:.3g}, as the environment reports it, over {_games(window)}; target {target.value:g}",
    )


def unreported(policy: SuccessPolicy, learner: LearnerStatus | None) -> list[str]:
    """That games of the newest full evaluation lack the metric which the job waits for; empty where all have it, or before there
    is one."""
    newest = [e for e in learner.evaluations if e.finished][-1:] if learner is not None else []
    return [said for e in newest if policy.metric is not None and (said := policy.metric.unreported(e))]


def _window(learner: LearnerStatus | None, target: TargetReturn | TargetMetric | None) -> list[Verdict]:
    """The newest full evaluations, as many as ``target`` is about; empty where there are fewer."""
    full = [e for e in learner.evaluations if e.finished] if learner is not None else []
    return full[-target.window_evaluations :] if target is not None and len(full) >= target.window_evaluations else []


def _games(window: Sequence[Verdict]) -> str:
    """Which games a verdict rests on, in words."""
    last = window[-1]
    of_seed = "" if last.seed is None else f" of seed {last.seed}"
    return f"{last.episodes} games" + (f" in each of {len(window)} evaluations" if len(window) > 1 else of_seed)


def raw_frames(context: ReconcileContext) -> OutcomeMemory | None:
    """The actors have produced ``rawFrames`` raw frames."""
    budget = context.spec.success_policy.raw_frames
    seen = context.observed.learner.raw_frames_total if context.observed.learner is not None else None
    if budget is None or seen is None or seen < budget:
        return None
    return complete(context, Reason.STEP_BUDGET_REACHED, f"{seen:,} of {budget:,} raw frames")


def count_evaluations(context: ReconcileContext) -> ReconcileContext:
    """Count the full evaluations that brought no improvement, each once: the learner lists only its last thousand."""
    rule, before = context.spec.early_stopping.plateau, context.memory.plateau
    if rule is None:
        return context if before is None else context.with_memory(plateau=None)
    if context.observed.learner is None:
        return context
    best, without, version = (before.best, before.without, before.version) if before is not None else (None, 0, 0)
    for evaluation in context.observed.learner.evaluations:
        if not evaluation.finished or evaluation.version <= version:
            continue
        version = evaluation.version
        if evaluation.raw_frames < rule.grace_raw_frames:
            continue
        if best is None or evaluation.mean > best + rule.min_delta:
            best, without = evaluation.mean, 0
        else:
            without += 1
    if before is not None and version == before.version:
        return context
    return context.with_memory(plateau=PlateauMemory.model_construct(best=best, without=without, version=version))


def plateau(context: ReconcileContext) -> OutcomeMemory | None:
    """``earlyStopping.plateau``: so many full evaluations in a row were no better than the best before by ``minDelta``."""
    rule, counted = context.spec.early_stopping.plateau, context.memory.plateau
    if rule is None or counted is None or counted.best is None or counted.without < rule.patience_evaluations:
        return None
    return complete(
        context,
        Reason.EARLY_STOPPED,
        f"{counted.without} evaluations in a row were not better than {counted.best:.2f} by more than {rule.min_delta:g}",
    )

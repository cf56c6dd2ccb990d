"""When a job has succeeded (spec.successPolicy) or is given up (spec.earlyStopping): the first criterion that is met ends it and
names the reason.

``trainingReturn`` and ``valueLoss`` are about medians over a window of raw frames, judged by nine moments, a ninth of it apart,
so that a job's memory stays small and the answer does not depend on how often the learner is asked. A run that was recorded, with
a line every two seconds, is therefore judged as it was while it ran.
"""

from collections.abc import Sequence
from statistics import median
from typing import Final

from rljob.api.conditions import Reason
from rljob.api.controller_memory import TREND_POINTS, OutcomeMemory, PlateauMemory, TrendMemory, TrendPoint
from rljob.api.learner_status import LearnerStatus, Verdict
from rljob.api.lifecycle import SuccessPolicy, TargetMetric, TargetReturn, TrainingReturn, ValueLoss
from rljob.telemetry.flat_figures import GAMES_TO_GO_BY

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


_LARGEST_LOSS: Final = 1e15
"""What is larger has diverged all the same."""


def follow_trends(context: ReconcileContext) -> ReconcileContext:
    """Note the moment, for each of the two rules that the job has and that is due for one."""
    rules, memory = context.spec.early_stopping, context.memory
    watched = ((rules.training_return, memory.training_return), (rules.value_loss, memory.value_loss))
    if watched == ((None, None), (None, None)):
        return context
    for_return, for_loss = (
        None if rule is None else _followed(rule, seen, context.observed.learner) for rule, seen in watched
    )
    if for_return is memory.training_return and for_loss is memory.value_loss:
        return context
    return context.with_memory(training_return=for_return, value_loss=for_loss)


def training_return(context: ReconcileContext) -> OutcomeMemory | None:
    """``earlyStopping.trainingReturn``: no median of a whole window was better than the best before it by ``minDelta``."""
    rule, seen = context.spec.early_stopping.training_return, context.memory.training_return
    if rule is None or seen is None or seen.without < TREND_POINTS:
        return None
    return complete(
        context,
        Reason.EARLY_STOPPED,
        f"training return: its median over {rule.window_raw_frames:,} raw frames is {_median_return(seen.points):.2f} and was "
        f"not better than {seen.best_return:.2f} by more than {rule.min_delta:g} for as many",
    )


def value_loss(context: ReconcileContext) -> OutcomeMemory | None:
    """``earlyStopping.valueLoss``: every median of a whole window was too large, and the training return below its best."""
    rule, seen = context.spec.early_stopping.value_loss, context.memory.value_loss
    if rule is None or seen is None or seen.without < TREND_POINTS:
        return None
    mean = _median_return(seen.points)
    returns = (
        ""
        if mean is None or seen.best_return is None
        else f", as the training return, {mean:.2f}, was below {seen.best_return:.2f}"
    )
    return complete(
        context,
        Reason.EARLY_STOPPED,
        f"value loss: its median over {rule.window_raw_frames:,} raw frames is {_median_loss(seen.points):.3g} and was more than "
        f"{rule.factor:g} times {seen.lowest_loss:.3g} for as many{returns}",
    )


def _followed(
    rule: TrainingReturn | ValueLoss, seen: TrendMemory | None, learner: LearnerStatus | None
) -> TrendMemory | None:
    """What is remembered for ``rule`` after a look at the learner; ``seen`` itself where there is nothing new."""
    if learner is None or not learner.updates or (frames := learner.raw_frames_total) is None:
        return seen  # before the first update a replay fills, and nothing can have been learned
    few = learner.games is not None and learner.games < GAMES_TO_GO_BY
    mean, loss = None if few else learner.mean_return, learner.value_loss
    if (mean if isinstance(rule, TrainingReturn) else loss) is None:
        return seen
    seen = seen or TrendMemory()
    if seen.points and frames < seen.points[-1].raw_frames:  # the learner went back to a checkpoint
        seen = seen.model_copy(update={"points": [], "without": 0})
    if seen.points and frames - seen.points[-1].raw_frames < rule.window_raw_frames / TREND_POINTS:
        return seen
    loss = None if loss is None else min(loss, _LARGEST_LOSS)
    point = TrendPoint.model_construct(raw_frames=frames, mean_return=mean, value_loss=loss)
    points = [*seen.points, point][-TREND_POINTS:]
    if len(points) < TREND_POINTS or frames < rule.grace_raw_frames:
        return seen.model_copy(update={"points": points})
    judged = (
        _return_judged(rule, seen, points) if isinstance(rule, TrainingReturn) else _loss_judged(rule, seen, points)
    )
    return judged.model_copy(update={"points": points})


def _return_judged(rule: TrainingReturn, seen: TrendMemory, points: list[TrendPoint]) -> TrendMemory:
    mean, best = _median_return(points), seen.best_return
    if best is None or (mean is not None and mean > best + rule.min_delta):
        return seen.model_copy(update={"best_return": mean, "without": 0})
    return seen.model_copy(update={"without": seen.without + 1})


def _loss_judged(rule: ValueLoss, seen: TrendMemory, points: list[TrendPoint]) -> TrendMemory:
    """A return that is at its best makes any loss right, and the measure of later ones: better policies earn more, and values
    that are larger, or begin to differ at all, have larger errors."""
    mean, loss, best, lowest = _median_return(points), _median_loss(points), seen.best_return, seen.lowest_loss
    if mean is not None and (best is None or mean >= best):
        return seen.model_copy(update={"best_return": mean, "lowest_loss": loss, "without": 0})
    lowest = loss if lowest is None else min(loss, lowest)
    too_large = 0.0 < rule.factor * lowest < loss
    return seen.model_copy(update={"lowest_loss": lowest, "without": seen.without + 1 if too_large else 0})


def _median_return(points: list[TrendPoint]) -> float | None:
    found = [each.mean_return for each in points if each.mean_return is not None]
    return median(found) if found else None


def _median_loss(points: list[TrendPoint]) -> float:
    return median(each.value_loss for each in points if each.value_loss is not None)

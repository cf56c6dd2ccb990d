"""When a job has succeeded (spec.successPolicy): the first criterion that is met ends it and names the reason."""

from __future__ import annotations

from rljob.api.conditions import Reason
from rljob.api.controller_memory import OutcomeMemory, PlateauMemory

from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.rules.outcomes import complete


def target_return(context: ReconcileContext) -> OutcomeMemory | None:
    """The mean of the last ``windowEvaluations`` full evaluations has reached ``targetReturn.value``."""
    target = context.spec.success_policy.target_return
    if target is None or context.observed.learner is None:
        return None
    full = [e for e in context.observed.learner.evaluations if e.finished]
    window = full[-target.window_evaluations :]
    if len(window) < target.window_evaluations:
        return None
    mean = sum(e.mean for e in window) / len(window)
    if mean < target.value:
        return None
    last = window[-1]
    over = f"{last.episodes} games"
    if len(window) > 1:
        over += f" in each of {len(window)} evaluations"
    elif last.seed is not None:
        over += f" of seed {last.seed}"
    return complete(
        context,
        Reason.TARGET_RETURN_REACHED,
        f"mean return {mean:.2f} (standard error {last.standard_error or 0.0:.2f}) over {over}; target {target.value:g}",
    )


def raw_frames(context: ReconcileContext) -> OutcomeMemory | None:
    """The actors have produced ``rawFrames`` raw frames."""
    budget = context.spec.success_policy.raw_frames
    seen = context.observed.learner.raw_frames_total if context.observed.learner is not None else None
    if budget is None or seen is None or seen < budget:
        return None
    return complete(context, Reason.STEP_BUDGET_REACHED, f"{seen:,} raw frames of {budget:,} asked for")


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

"""What is told of an experiment in its status: figures, and conditions as those of a job. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rljob.api.conditions import ConditionType, Reason
from rljob.api.experiment_status import RLExperimentStatus

from rljob_operator.core.conditions.update import ConditionUpdate, false, merged, true, withdrawn
from rljob_operator.experiments.state import ExperimentState
from rljob_operator.experiments.summary import best_in_words

FINISHED: Final = (ConditionType.COMPLETE, ConditionType.FAILED)


def conditions(
    state: ExperimentState,
    before: RLExperimentStatus,
    *,
    suspend: bool,
    rests: bool,
    judged: bool,
    refused: str,
    trouble: Sequence[str] = (),
    held: Sequence[str] = (),
) -> Iterator[ConditionUpdate]:
    """What holds of an experiment.

    Args:
        before: what was told last.
        suspend: whether nothing of it shall run.
        rests: whether nothing of it runs.
        judged: whether the best trial was judged anew, or can't be.
        refused: why the newest spec is not in force; empty where it is.
        trouble: what keeps it from going on, or is to be told at its end.
        held: what it waits for that may come by itself, or not.
    """
    yield (
        false(ConditionType.ACCEPTED, Reason.INVALID_SPEC, refused)
        if refused
        else true(ConditionType.ACCEPTED, Reason.VALID)
    )
    words = "; ".join(trouble)
    if state.experiment is None:
        yield false(ConditionType.READY, Reason.INVALID_SPEC, refused)
        return
    stopped = suspend and rests and state.end is None
    yield (true if stopped else false)(ConditionType.SUSPENDED, Reason.USER_REQUESTED if stopped else Reason.RESUMED)
    if state.end is None:
        yield from (withdrawn(ended) for ended in FINISHED if any(each.type == ended for each in before.conditions))
        reason = Reason.RUNNING if not suspend else Reason.SUSPENDED if rests else Reason.SUSPENDING
        reason = Reason.DEGRADED if words and not suspend else reason
        ready = true if reason in (Reason.RUNNING, Reason.DEGRADED) else false
        yield ready(ConditionType.READY, reason, "; ".join([*trouble, *held]))
        return
    ended, failed = state.end["reason"], state.has_failed
    if not (rests and judged):
        told = ["the best trial is judged on games that it was not chosen by", *held]
        yield true(ConditionType.READY, Reason.FINISHING, "; ".join(told))
        return
    why = next((f"; trial {run.trial}: {run.why}" for run in state.runs.values() if run.why), "") if failed else ""
    how = f"the best is {best_in_words(state)}" if any(state.best()) else "no trial was judged"
    said = f"{how}{why}" + (f"; {words}" if words else "")
    reason = Reason.FAILED if failed else Reason.COMPLETE
    yield (false if failed else true)(ConditionType.READY, reason, said)
    yield true(ConditionType.FAILED if failed else ConditionType.COMPLETE, ended, said)


def finished(status: RLExperimentStatus) -> bool:
    """Whether the experiment has ended; with more trials or seeds it goes on."""
    return any(each.type in FINISHED and each.status == "True" for each in status.conditions)


def after(
    before: RLExperimentStatus,
    updates: Iterable[ConditionUpdate],
    figures: Mapping[str, Any],
    generation: int,
    now: float,
) -> RLExperimentStatus:
    """The status after ``updates``, with ``figures`` in the place of those that it had. ``now``: Unix seconds."""
    known = RLExperimentStatus.model_validate({**dict(before), **figures}).model_copy(
        update={
            "observed_generation": generation,
            "start_time": before.start_time or now,
            "conditions": merged(before.conditions, updates, generation, now),
        }
    )
    return known.model_copy(update={"completion_time": (before.completion_time or now) if finished(known) else None})

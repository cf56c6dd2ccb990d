"""A run that was recorded, led through the rules that end a job: when each of them would have ended it. Pure.

The rules are those of `decide`, asked with what the record has of the learner. What a record does not have of a run, such as
members that failed, no rule is asked about.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from rljob.api import RLJob
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob.telemetry.flat_figures import number

from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.desired import DesiredState
from rljob_operator.core.observed import Observation
from rljob_operator.core.rules import clocks, progress, success

EVALUATION: Final = "evaluation"
"""The ``kind`` of a record of one."""
_LISTED: Final = 1000
"""Evaluations that a learner lists, the newest."""
SUCCESS: Final = MappingProxyType({"targetReturn": success.target_return, "metric": success.metric})
"""Rules with which a run counts as solved, by their names in a manifest."""
OTHERS: Final = MappingProxyType(
    {
        "rawFrames": success.raw_frames,
        "plateau": success.plateau,
        "trainingReturn": success.training_return,
        "valueLoss": success.value_loss,
        "activeDeadlineSeconds": clocks.active_deadline,
        "progressDeadlineSeconds": clocks.progress_deadline,
    }
)


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a run was: its seconds without pauses, its raw frames, and its newest training return. ``message``: what the rule
    that would have ended it there says."""

    seconds: float
    raw_frames: int
    mean_return: float | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """``ends``: where each rule that would have ended the run did so first, by its name. ``last``: where the record ends."""

    ends: Mapping[str, Moment]
    last: Moment

    @property
    def solved(self) -> Moment | None:
        """Where it counts as solved first."""
        return min((self.ends[name] for name in SUCCESS if name in self.ends), key=lambda at: at.seconds, default=None)

    @property
    def given_up(self) -> str | None:
        """The rule that would have been the first to end it, before it was solved."""
        end = self.solved or self.last
        others = [name for name in OTHERS if name in self.ends and self.ends[name].seconds < end.seconds]
        return min(others, key=lambda name: self.ends[name].seconds, default=None)


def judged(job: RLJob, records: Iterable[Mapping[str, Any]]) -> Judged:
    """What the rules of ``job`` would have made of the run that left ``records``, those of a ``metrics.jsonl`` in their order."""
    desired, learner, here = DesiredState(job), LearnerStatus(), Moment(0.0, 0, None)
    ready = RLJobStatus().controller.model_copy(update={"active_since": 0.0, "starting_since": 0.0, "placed": 0.0})
    status = RLJobStatus().model_copy(update={"controller": ready})
    ends: dict[str, Moment] = {}
    for record in records:
        verdicts = learner.evaluations
        if record.get("kind") == EVALUATION:
            # What the environment reports has names of its own in a record.
            metrics = {name.removeprefix("episode/"): of for name, of in record.items() if name.startswith("episode/")}
            told = LearnerStatus.lenient({"evaluations": [{**record, "metrics": metrics}]})
            verdicts = (*verdicts, *told.evaluations)[-_LISTED:]
        elif "kind" in record:
            continue
        else:
            learner = LearnerStatus.lenient({**record, "raw_frames_total": record.get("raw_frames")})
        seconds = max(here.seconds, number(record.get("elapsed_seconds")) or 0.0)
        learner = replace(learner, evaluations=verdicts, taken_seconds=seconds)
        here = Moment(seconds, learner.raw_frames_total or 0, learner.mean_return)
        context = ReconcileContext.at(desired, status, Observation(learner=learner), seconds)
        if learner.updates and status.controller.started is None:  # until then a replay may fill
            context = context.with_memory(started=seconds)
        for follow in (progress.advance, success.count_evaluations, success.follow_trends):
            context = follow(context)
        status = context.status
        for name, rule in {**SUCCESS, **OTHERS}.items():
            if name not in ends and (outcome := rule(context)) is not None:
                ends[name] = replace(here, message=outcome.message)
    return Judged(ends, here)

"""Rules of the end of a job: what could never be seen, or is missing."""

from rljob.api.job import RLJobSpec
from rljob.api.presets import PRESETS
from rljob.api.problems import ABSENT
from rljob.api.rule import Broken, Outcome, holds, rule

_UNSEEN = "allowed: only with evaluator.enabled: true; "
_NO_TARGET = f"{_UNSEEN}without evaluations it can never be reached"
_NO_END = (
    "required: targetReturn, metric or rawFrames, or else earlyStopping.plateau or activeDeadlineSeconds; {} of {}"
)
_RULES = (
    holds(
        "target_that_is_seen",
        RLJobSpec,
        "successPolicy.targetReturn",
        lambda spec: spec.evaluator.enabled or spec.success_policy.target_return is None,
        cel="!has(self.successPolicy) || !has(self.successPolicy.targetReturn) || self.evaluator.enabled",
        message=_NO_TARGET,
    ),
    holds(
        "metric_that_is_seen",
        RLJobSpec,
        "successPolicy.metric",
        lambda spec: spec.evaluator.enabled or spec.success_policy.metric is None,
        cel="!has(self.successPolicy) || !has(self.successPolicy.metric) || self.evaluator.enabled",
        message=_NO_TARGET,
    ),
    holds(
        "plateau_that_is_seen",
        RLJobSpec,
        "earlyStopping.plateau",
        lambda spec: spec.evaluator.enabled or spec.early_stopping.plateau is None,
        cel="!has(self.earlyStopping) || !has(self.earlyStopping.plateau) || self.evaluator.enabled",
        message=f"{_UNSEEN}without evaluations there is no evalReturn",
    ),
    holds(
        "bounds_from_least_to_most",
        RLJobSpec,
        "evaluator.returnBounds",
        lambda spec: not (bounds := spec.evaluator.return_bounds) or bounds[0] < bounds[1],
        cel="self.evaluator.returnBounds[0] < self.evaluator.returnBounds[1]",
        message="allowed: [low, high] with low below high",
    ),
    holds(
        "trigger_needs_an_evaluator",
        RLJobSpec,
        "evaluator.triggerReturn",
        lambda spec: spec.evaluator.enabled or spec.evaluator.trigger_return is None,
        also=("evaluator.enabled",),
        message=f"{_UNSEEN}there would be no evaluator to trigger",
    ),
)


@rule(
    RLJobSpec,
    "successPolicy",
    reason="FieldValueRequired",
    also=("environment.id", "activeDeadlineSeconds", "earlyStopping.plateau"),
    message=_NO_END.format("those of the preset are", "its own environment"),
)
def an_end_where_the_presets_does_not_count(spec: RLJobSpec) -> Outcome:
    preset = None if spec.preset is None else PRESETS[spec.preset]
    policy, deadline = spec.success_policy, spec.active_deadline_seconds
    ends = (policy.raw_frames, policy.target_return, policy.metric, spec.early_stopping.plateau, deadline)
    if preset is None or preset.is_whole_for(spec.environment.id) or any(end is not None for end in ends):
        return None
    return Broken(_NO_END.format(f"those of preset {preset.name} are", preset.environment_id), ABSENT)

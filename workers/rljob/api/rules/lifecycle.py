"""Rules of verdicts, checkpoints and failures: what could never be seen, saved or matched."""

from __future__ import annotations

from rljob.api.job import RLJobSpec
from rljob.api.lifecycle import CheckpointSpec, CheckpointStorage, FailureRule
from rljob.api.presets import PRESETS
from rljob.api.problems import ABSENT
from rljob.api.rule import Broken, Outcome, rule

_NO_TARGET = (
    "allowed: only with evaluator.enabled: true; without evaluations the target could never be seen to be reached"
)
_NO_PLATEAU = "allowed: only with evaluator.enabled: true; without evaluations there is no evalReturn"
_NO_TRIGGER = "allowed: only with evaluator.enabled: true; there would be no evaluator to trigger"
_NO_END = (
    "required: targetReturn, metric or rawFrames, or else earlyStopping.plateau or activeDeadlineSeconds; {} of {}"
)
_ONE_STORAGE = "allowed: exactly one of persistentVolumeClaim and objectStore"
_LEARNER_ALWAYS = "allowed: Learner always, Replay optionally; nothing could be resumed without it"
_ONE_MATCH = "allowed: exactly one of onExitCodes and onPodConditions"


@rule(
    RLJobSpec,
    "successPolicy.targetReturn",
    cel="!has(self.successPolicy) || !has(self.successPolicy.targetReturn) || self.evaluator.enabled",
    message=_NO_TARGET,
)
def target_that_is_seen(spec: RLJobSpec) -> Outcome:
    target = spec.success_policy.target_return
    return None if target is None or spec.evaluator.enabled else Broken(_NO_TARGET, target.value)


@rule(
    RLJobSpec,
    "successPolicy.metric",
    cel="!has(self.successPolicy) || !has(self.successPolicy.metric) || self.evaluator.enabled",
    message=_NO_TARGET,
)
def metric_that_is_seen(spec: RLJobSpec) -> Outcome:
    metric = spec.success_policy.metric
    return None if metric is None or spec.evaluator.enabled else Broken(_NO_TARGET, metric.value)


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


@rule(
    RLJobSpec,
    "earlyStopping.plateau",
    cel="!has(self.earlyStopping) || !has(self.earlyStopping.plateau) || self.evaluator.enabled",
    message=_NO_PLATEAU,
)
def plateau_that_is_seen(spec: RLJobSpec) -> Outcome:
    plateau = spec.early_stopping.plateau
    return None if plateau is None or spec.evaluator.enabled else Broken(_NO_PLATEAU, ABSENT)


@rule(
    RLJobSpec,
    "evaluator.triggerReturn",
    also=("evaluator.enabled",),
    message=_NO_TRIGGER,
)
def trigger_needs_an_evaluator(spec: RLJobSpec) -> Outcome:
    return None if spec.evaluator.trigger_return is None or spec.evaluator.enabled else _NO_TRIGGER


@rule(
    CheckpointStorage,
    "",
    cel="has(self.persistentVolumeClaim) != has(self.objectStore)",
    message=_ONE_STORAGE,
)
def one_storage(storage: CheckpointStorage) -> Outcome:
    given = {"persistentVolumeClaim": storage.persistent_volume_claim, "objectStore": storage.object_store}
    chosen = [name for name, value in given.items() if value is not None]
    return None if len(chosen) == 1 else Broken(_ONE_STORAGE, chosen or ABSENT)


@rule(
    CheckpointSpec,
    "include",
    cel="self.include.exists(part, part == 'Learner')",
    message=_LEARNER_ALWAYS,
)
def the_learner_is_saved(checkpoint: CheckpointSpec) -> Outcome:
    return None if "Learner" in checkpoint.include else _LEARNER_ALWAYS


@rule(
    FailureRule,
    "",
    cel="has(self.onExitCodes) != (has(self.onPodConditions) && self.onPodConditions.size() > 0)",
    message=_ONE_MATCH,
)
def one_match(failure: FailureRule) -> Outcome:
    if (failure.on_exit_codes is None) == (not failure.on_pod_conditions):
        return Broken(_ONE_MATCH, failure.name)
    return None

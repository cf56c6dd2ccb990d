"""Rules of a job's end (what could never be seen, or is missing), and within the sections of accelerators, checkpoints, failures,
monitoring and tracking."""

from rljob.api.cluster import DATA_PORTS, MonitoringSpec
from rljob.api.job import RLJobSpec
from rljob.api.lifecycle import CheckpointSpec, CheckpointStorage, FailureRule
from rljob.api.presets import PRESETS
from rljob.api.roles import Accelerator
from rljob.api.rule import Rule
from rljob.api.tracking import TrackingSpec

_UNSEEN = "allowed: only with evaluator.enabled: true; "
_NO_TARGET = f"{_UNSEEN}without evaluations it can never be reached"
_AN_END = "targetReturn, metric or rawFrames, or else earlyStopping.plateau or activeDeadlineSeconds"


def _ends(spec: RLJobSpec) -> bool:
    """Whether the job has an end of its own, or that of its preset counts."""
    policy, deadline = spec.success_policy, spec.active_deadline_seconds
    ends = (policy.raw_frames, policy.target_return, policy.metric, spec.early_stopping.plateau, deadline)
    whole = spec.preset is None or PRESETS[spec.preset].is_whole_for(spec.environment.id)
    return whole or any(end is not None for end in ends)


_RULES = (
    Rule(
        "one_device",
        Accelerator,
        "count",
        lambda it: it.count is None or it.count <= 1,
        cel="!has(self.count) || self.count <= 1",
        message="allowed: 0 or 1; a role uses one device; others would be reserved and idle",
    ),
    Rule(
        "on_missing_needs_a_device",
        Accelerator,
        "onMissing",
        lambda it: it.on_missing is None or it.count is not None,
        reason="FieldValueForbidden",
        cel="!has(self.onMissing) || has(self.count)",
        message="allowed: only beside count; without a requested device none can be missing",
    ),
    Rule(
        "device_needs_one",
        Accelerator,
        "device",
        lambda it: it.count != 0 or it.device != "Accelerator",
        reason="FieldValueForbidden",
        cel="!has(self.count) || self.count > 0 || self.device != 'Accelerator'",
        message="allowed: Accelerator only with a device; count 0 uses none",
    ),
    Rule(
        "one_storage",
        CheckpointStorage,
        "",
        lambda it: (it.persistent_volume_claim is None) != (it.object_store is None),
        cel="has(self.persistentVolumeClaim) != has(self.objectStore)",
        message="allowed: exactly one of persistentVolumeClaim and objectStore",
    ),
    Rule(
        "the_learner_is_saved",
        CheckpointSpec,
        "include",
        lambda it: "Learner" in it.include,
        cel="self.include.exists(part, part == 'Learner')",
        message="allowed: Learner always, Replay optionally; nothing could be resumed without it",
    ),
    Rule(
        "one_match",
        FailureRule,
        "",
        lambda it: (it.on_exit_codes is None) != (not it.on_pod_conditions),
        cel="has(self.onExitCodes) != (has(self.onPodConditions) && self.onPodConditions.size() > 0)",
        message="allowed: exactly one of onExitCodes and onPodConditions",
    ),
    Rule(
        "a_port_of_its_own",
        MonitoringSpec,
        "metricsPort",
        lambda it: it.metrics_port not in DATA_PORTS,
        cel=f"self.metricsPort < {DATA_PORTS[0]} || self.metricsPort > {DATA_PORTS[-1]}",
        message=f"allowed: a port outside {DATA_PORTS[0]} to {DATA_PORTS[-1]}; on those, pods send experience and weights",
    ),
    Rule(
        "somewhere",
        TrackingSpec,
        "",
        lambda it: bool(it.wandb or it.mlflow),
        reason="FieldValueRequired",
        cel="has(self.wandb) || has(self.mlflow)",
        message="required: wandb, such as wandb: {}, or mlflow; metrics need a destination",
    ),
    Rule(
        "target_that_is_seen",
        RLJobSpec,
        "successPolicy.targetReturn",
        lambda spec: spec.evaluator.enabled or spec.success_policy.target_return is None,
        cel="!has(self.successPolicy) || !has(self.successPolicy.targetReturn) || self.evaluator.enabled",
        message=_NO_TARGET,
    ),
    Rule(
        "metric_that_is_seen",
        RLJobSpec,
        "successPolicy.metric",
        lambda spec: spec.evaluator.enabled or spec.success_policy.metric is None,
        cel="!has(self.successPolicy) || !has(self.successPolicy.metric) || self.evaluator.enabled",
        message=_NO_TARGET,
    ),
    Rule(
        "plateau_that_is_seen",
        RLJobSpec,
        "earlyStopping.plateau",
        lambda spec: spec.evaluator.enabled or spec.early_stopping.plateau is None,
        cel="!has(self.earlyStopping) || !has(self.earlyStopping.plateau) || self.evaluator.enabled",
        message=f"{_UNSEEN}without evaluations there is no evalReturn",
    ),
    Rule(
        "bounds_from_least_to_most",
        RLJobSpec,
        "evaluator.returnBounds",
        lambda spec: not (bounds := spec.evaluator.return_bounds) or bounds[0] < bounds[1],
        cel="self.evaluator.returnBounds[0] < self.evaluator.returnBounds[1]",
        message="allowed: [low, high] with low below high",
    ),
    Rule(
        "trigger_needs_an_evaluator",
        RLJobSpec,
        "evaluator.triggerReturn",
        lambda spec: spec.evaluator.enabled or spec.evaluator.trigger_return is None,
        message=f"{_UNSEEN}there would be no evaluator to trigger",
    ),
    Rule(
        "an_end_where_the_presets_does_not_count",
        RLJobSpec,
        "successPolicy",
        _ends,
        f"required: {_AN_END}; those of the preset are of its own environment",
        lambda spec: f"preset {spec.preset} is of {PRESETS[spec.preset].environment_id}",
        reason="FieldValueRequired",
    ),
)

"""Rules within the sections of accelerators, checkpoints, failures, monitoring and tracking."""

from rljob.api.cluster import DATA_PORTS, MonitoringSpec
from rljob.api.lifecycle import CheckpointSpec, CheckpointStorage, FailureRule
from rljob.api.roles import Accelerator
from rljob.api.rule import holds
from rljob.api.tracking import TrackingSpec

_RULES = (
    holds(
        "one_device",
        Accelerator,
        "count",
        lambda it: it.count is None or it.count <= 1,
        cel="!has(self.count) || self.count <= 1",
        message="allowed: 0 or 1; a role uses one device; others would be reserved and idle",
    ),
    holds(
        "on_missing_needs_a_device",
        Accelerator,
        "onMissing",
        lambda it: it.on_missing is None or it.count is not None,
        reason="FieldValueForbidden",
        cel="!has(self.onMissing) || has(self.count)",
        message="allowed: only beside count; without a requested device none can be missing",
    ),
    holds(
        "device_needs_one",
        Accelerator,
        "device",
        lambda it: it.count != 0 or it.device != "Accelerator",
        reason="FieldValueForbidden",
        cel="!has(self.count) || self.count > 0 || self.device != 'Accelerator'",
        message="allowed: Accelerator only with a device; count 0 uses none",
    ),
    holds(
        "one_storage",
        CheckpointStorage,
        "",
        lambda it: (it.persistent_volume_claim is None) != (it.object_store is None),
        cel="has(self.persistentVolumeClaim) != has(self.objectStore)",
        message="allowed: exactly one of persistentVolumeClaim and objectStore",
    ),
    holds(
        "the_learner_is_saved",
        CheckpointSpec,
        "include",
        lambda it: "Learner" in it.include,
        cel="self.include.exists(part, part == 'Learner')",
        message="allowed: Learner always, Replay optionally; nothing could be resumed without it",
    ),
    holds(
        "one_match",
        FailureRule,
        "",
        lambda it: (it.on_exit_codes is None) != (not it.on_pod_conditions),
        cel="has(self.onExitCodes) != (has(self.onPodConditions) && self.onPodConditions.size() > 0)",
        message="allowed: exactly one of onExitCodes and onPodConditions",
    ),
    holds(
        "a_port_of_its_own",
        MonitoringSpec,
        "metricsPort",
        lambda it: it.metrics_port not in DATA_PORTS,
        cel=f"self.metricsPort < {DATA_PORTS[0]} || self.metricsPort > {DATA_PORTS[-1]}",
        message=f"allowed: a port outside {DATA_PORTS[0]} to {DATA_PORTS[-1]}; on those, pods send experience and weights",
    ),
    holds(
        "somewhere",
        TrackingSpec,
        "",
        lambda it: bool(it.wandb or it.mlflow),
        reason="FieldValueRequired",
        cel="has(self.wandb) || has(self.mlflow)",
        message="required: wandb, such as wandb: {}, or mlflow; metrics need a destination",
    ),
)

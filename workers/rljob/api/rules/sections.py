"""Rules of ``spec.replay``: sizes that would never let training start, and a limiter that would stop both sides. Of actors,
servers and the learner's processes: how many there are, who decides, and a part of every batch and experience of its own for
each process. Of a job's end (what could never be seen, or is missing), and within other sections."""

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.job import DATA_PORTS, MonitoringSpec, RLJobSpec, TrackingSpec
from rljob.api.lifecycle import CheckpointSpec, CheckpointStorage, FailureRule
from rljob.api.presets import PRESETS
from rljob.api.roles import Accelerator, AutoscalingSpec
from rljob.api.rule import Rule, at_least, at_most
from rljob.api.rules.algorithm import TYPE

_STORING_NOTHING = [name for name, each in BUILT_IN.items() if not each.from_replay]


def _widest_step(spec: RLJobSpec) -> float:
    """Insertion adds ratio * chunk samples to the credit, a batch takes its size; both are blocked for good when the band of
    2 * errorBuffer is narrower than the two together. Twice the chunk's share (the bound Reverb uses) always leaves room."""
    replay, parameters = spec.required_replay, spec.algorithm.parameters
    ratio = replay.rate_limiter.samples_per_insert
    widest = replay.shards * max(2 * max(1.0, ratio) * parameters.chunk_length, parameters.batch_size)
    return widest if ratio else 0


_OF_REPLAY = (
    Rule(
        "no_replay",
        RLJobSpec,
        "replay",
        lambda spec: spec.replay is None or spec.algorithm.type not in _STORING_NOTHING,
        reason="FieldValueForbidden",
        cel=f"!has(self.replay) || !({TYPE} in {_STORING_NOTHING})",
        message=f"not allowed with {' and '.join(_STORING_NOTHING)}, which learn from fresh unrolls and store none; remove it",
    ),
    at_most(
        "min_size_within_capacity",
        RLJobSpec,
        "replay.rateLimiter.minSize",
        "replay.capacity",
        "a full store would still be below it and training never start",
        parameters=("chunkLength",),
    ),
    at_least(
        "min_size_of_a_batch",
        RLJobSpec,
        "replay.rateLimiter.minSize",
        "the algorithm's batchSize",
        "else a batch would be drawn from fewer transitions than it holds",
        lambda spec: spec.algorithm.parameters.batch_size,
        parameters=("batchSize", "chunkLength"),
    ),
    at_least(
        "room_for_every_environment",
        RLJobSpec,
        "replay.capacity",
        "actors.replicas * actors.envsPerActor * chunkLength, one chunk for each environment",
        "below that, an actor's chunk would overwrite another's before it is drawn",
        lambda spec: spec.actors.replicas * spec.actors.envs_per_actor * spec.algorithm.parameters.chunk_length,
        parameters=("chunkLength",),
    ),
    Rule(
        "a_chunk_in_every_shard",
        RLJobSpec,
        "replay.shards",
        lambda spec: (
            spec.replay is None
            or spec.replay.shards == 1
            or spec.replay.capacity // spec.replay.shards >= spec.algorithm.parameters.chunk_length
        ),
        "allowed: few enough that each shard's part of replay.capacity holds a chunk of chunkLength transitions",
        lambda spec: f"at most {max(1, spec.replay.capacity // spec.algorithm.parameters.chunk_length):,}",
        parameters=("chunkLength",),
    ),
    at_least(
        "no_mutual_wait",
        RLJobSpec,
        "replay.rateLimiter.errorBuffer",
        "shards * max(2 * max(1, samplesPerInsert) * chunkLength, batchSize) samples",
        "in a narrower band actors and learner would wait for each other forever. The default follows minSize",
        _widest_step,
        parameters=("batchSize", "chunkLength"),
    ),
)


def _parts_are_equal(spec: RLJobSpec) -> bool:
    parameters, processes = spec.algorithm.parameters, spec.learner.processes
    steps = parameters.unroll_length if getattr(parameters, "splits_steps", False) else 1
    minibatches = getattr(parameters, "minibatches", 1) if processes > 1 else 1
    return bool(parameters.batch_size % processes == 0 == parameters.batch_size // processes * steps % minibatches)


def _fewest_actors(spec: RLJobSpec) -> int:
    return spec.actors.replicas if spec.autoscaling.mode == "Disabled" else spec.autoscaling.min_replicas


_OF_ROLES = (
    at_most(
        "min_below_max",
        AutoscalingSpec,
        "minReplicas",
        "maxReplicas",
        "the autoscaler asks for no fewer than the one and no more than the other",
        cel="self.minReplicas <= self.maxReplicas",
    ),
    Rule(
        "at_least_one_actor",
        RLJobSpec,
        "actors.replicas",
        lambda spec: spec.autoscaling.mode != "Disabled" or spec.actors.replicas >= 1,
        cel="has(self.autoscaling) && has(self.autoscaling.mode) && self.autoscaling.mode != 'Disabled' || "
        "self.actors.replicas >= 1",
        message="allowed: at least 1 without autoscaling; no actor would play, and training would never start",
    ),
    Rule(
        "an_equilibrium",
        RLJobSpec,
        "autoscaling.mode",
        lambda spec: (
            spec.autoscaling.mode != "Internal"
            or spec.replay is None
            or spec.replay.rate_limiter.samples_per_insert > 0
        ),
        parameters=("chunkLength",),
        message="allowed: External or Disabled while replay.rateLimiter.samplesPerInsert is 0; a learner that draws without "
        "limit never lacks data, so no number of actors is right. Set samplesPerInsert",
    ),
    Rule(
        "servers_that_are_asked",
        RLJobSpec,
        "inference.replicas",
        lambda spec: spec.actors.inference == "Central" or spec.inference.replicas == 0,
        cel="has(self.actors.inference) && self.actors.inference == 'Central' || self.inference.replicas == 0",
        message="allowed: 0 with actors.inference: Local; no actor would use these servers. Set actors.inference: Central",
    ),
    Rule(
        "an_equal_part_for_each",
        RLJobSpec,
        "learner.processes",
        _parts_are_equal,
        parameters=("batchSize",),
        message="allowed: a divisor of batchSize whose quotient minibatches divides; every process learns from an equal part",
    ),
    Rule(
        "a_shard_for_each",
        RLJobSpec,
        "learner.processes",
        lambda spec: spec.replay is None or spec.learner.processes <= spec.replay.shards,
        parameters=("chunkLength",),
        message="allowed: at most replay.shards; each process draws from shards of its own",
    ),
    Rule(
        "an_actor_for_each",
        RLJobSpec,
        "learner.processes",
        lambda spec: spec.learner.processes in (1, *range(_fewest_actors(spec) + 1)),
        parameters=("unrollLength", "batchSize"),
        message="allowed: at most actors.replicas, with autoscaling minReplicas; each process learns from unrolls of its own",
    ),
    Rule(
        "an_unroll_of_each_environment_of_a_process",
        RLJobSpec,
        "learner.processes",
        lambda spec: (
            spec.learner.processes == 1
            or -(-_fewest_actors(spec) // spec.learner.processes) * spec.actors.envs_per_actor
            <= spec.algorithm.parameters.batch_size // spec.learner.processes
        ),
        algorithm="PPO",
        parameters=("unrollLength", "batchSize"),
        message="allowed: few enough that a process's part of batchSize has an unroll of each environment of its actors, which "
        "the processes share",
    ),
    Rule(
        "centred_by_one",
        RLJobSpec,
        "environment.centreInput",
        lambda spec: spec.learner.processes == 1 or not spec.environment.centre_input,
        parameters=("batchSize",),
        message="allowed: false with learner.processes above 1; each process would subtract another mean",
    ),
    Rule(
        "back_together",
        RLJobSpec,
        "earlyStopping.onNonFiniteLoss",
        lambda spec: spec.learner.processes == 1 or spec.early_stopping.on_non_finite_loss != "RestoreAndContinue",
        parameters=("batchSize",),
        message="allowed: Fail or Ignore with learner.processes above 1; its processes go back to a checkpoint by starting again",
    ),
    at_least(
        "room_for_one_actor",
        RLJobSpec,
        "inference.maxBatchSize",
        "actors.envsPerActor with actors.inference: Central",
        "the batch has no room for the observations of one actor",
        lambda spec: spec.actors.envs_per_actor if spec.actors.inference == "Central" else 0,
    ),
)


_UNSEEN = "allowed: only with evaluator.enabled: true; "
_NO_TARGET = f"{_UNSEEN}without evaluations it can never be reached"


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
        "required: targetReturn, metric or rawFrames, or else earlyStopping.plateau or activeDeadlineSeconds; those of the "
        "preset are of its own environment",
        lambda spec: f"preset {spec.preset} is of {PRESETS[spec.preset].environment_id}",
        reason="FieldValueRequired",
    ),
)

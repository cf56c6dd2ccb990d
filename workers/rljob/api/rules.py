"""Rules between fields of a job: what each field allows by itself can still be impossible together.

A rule is a generator of problems. Each says which deadlock or dead letter it prevents, and names the field to change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from rljob.api.algorithm import AlgorithmParameters
from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.impala import ImpalaParameters
from rljob.api.job import RLJob
from rljob.api.pods import RoleSpec
from rljob.api.problems import ABSENT, Problem
from rljob.api.staleness import in_flight
from rljob.api.types import decimal_text

Rule = Callable[[RLJob, AlgorithmParameters], Iterator[Problem]]


def cross_field_problems(job: RLJob) -> list[Problem]:
    """Every violated rule. Parameters that are wrong by themselves are reported elsewhere; their defaults stand in for
    them here."""
    parameters, _ = job.spec.algorithm.checked()
    return list(chain.from_iterable(rule(job, parameters) for rule in _RULES))


def _sections(job: RLJob, parameters: AlgorithmParameters) -> Iterator[Problem]:
    """Each algorithm has one kind of store, and only that one."""
    spec, name = job.spec, job.spec.algorithm.name
    wanted, other = ("queue", "replay") if name == "IMPALA" else ("replay", "queue")
    if getattr(spec, wanted) is None:
        yield Problem(f"spec.{wanted}", ABSENT, f"required with algorithm {name}; {wanted}: {{}} takes its defaults")
    if getattr(spec, other) is not None:
        why = (
            "IMPALA learns from every unroll once and stores none; remove it, and say how many may wait in spec.queue"
            if other == "replay"
            else "ApeXDQN draws from a store of experience; remove it, and describe the store in spec.replay"
        )
        yield Problem(f"spec.{other}", ABSENT, f"not allowed with algorithm {name}: {why}")


def _queue(job: RLJob, parameters: AlgorithmParameters) -> Iterator[Problem]:
    spec, queue = job.spec, job.spec.queue
    if queue is None or not isinstance(parameters, ImpalaParameters):
        return
    if queue.capacity < parameters.batch_size:
        yield Problem(
            "spec.queue.capacity",
            queue.capacity,
            f"allowed: at least batchSize ({parameters.batch_size:,} unrolls); a smaller queue never holds a whole batch and "
            "training never starts",
        )
        return
    latency = in_flight(spec, queue, parameters)
    if queue.max_policy_lag_updates < latency.updates:
        yield Problem(
            "spec.queue.maxPolicyLagUpdates",
            queue.max_policy_lag_updates,
            f"allowed: at least {latency}; with the queue full, unrolls would be discarded for the time they merely wait",
        )
        return
    if spec.autoscaling.mode == "Disabled":
        return
    guard = spec.autoscaling.guards.max_policy_lag_updates
    percent = spec.autoscaling.target.queue_utilization_percent
    at_target = in_flight(spec, queue, parameters, percent)
    path = "spec.autoscaling.guards.maxPolicyLagUpdates"
    if guard > queue.max_policy_lag_updates:
        yield Problem(
            path,
            guard,
            f"allowed: at most queue.maxPolicyLagUpdates ({queue.max_policy_lag_updates}); older unrolls are discarded before "
            "their lag is seen, so the guard would never act",
        )
    elif guard < at_target.updates:
        yield Problem(
            path,
            guard,
            f"allowed: at least {at_target}, with the queue filled to target.queueUtilizationPercent ({percent}); below it the "
            "guard would take actors away that the target asks for. Unless given it is four fifths of "
            "queue.maxPolicyLagUpdates: raise that, or lower queue.capacity",
        )


def _signal(job: RLJob, parameters: AlgorithmParameters) -> Iterator[Problem]:
    spec, scaling = job.spec, job.spec.autoscaling
    own = "LearnerQueueDepth" if spec.algorithm.name == "IMPALA" else "SamplesPerInsert"
    if scaling.signal != own:
        yield Problem(
            "spec.autoscaling.signal",
            scaling.signal,
            f"allowed: {own} with algorithm {spec.algorithm.name}, or nothing, which means the same",
        )
    if scaling.mode == "Internal" and spec.replay is not None and spec.replay.rate_limiter.samples_per_insert == 0:
        yield Problem(
            "spec.autoscaling.mode",
            scaling.mode,
            "allowed: External or Disabled while replay.rateLimiter.samplesPerInsert is 0; a learner that may draw "
            "without limit is never short of data, so no number of actors is the right one. Set samplesPerInsert",
        )


def _inference(job: RLJob, parameters: AlgorithmParameters) -> Iterator[Problem]:
    inference, actors = job.spec.inference, job.spec.actors
    if actors.inference == "Central" and inference.max_batch_size < actors.envs_per_actor:
        yield Problem(
            "spec.inference.maxBatchSize",
            inference.max_batch_size,
            f"allowed: at least actors.envsPerActor ({actors.envs_per_actor}) with actors.inference: Central; the batch has no "
            "room for the observations of one actor",
        )
    if actors.inference == "Local" and inference.replicas > 0:
        yield Problem(
            "spec.inference.replicas",
            inference.replicas,
            "allowed: 0 with actors.inference: Local; nobody would ask these servers. Set actors.inference: Central",
        )


def _sizes(job: RLJob, parameters: AlgorithmParameters) -> Iterator[Problem]:
    replay = job.spec.replay
    if replay is None or not isinstance(parameters, ApeXDQNParameters):
        return
    limiter = replay.rate_limiter
    if limiter.min_size > replay.capacity:
        yield Problem(
            "spec.replay.rateLimiter.minSize",
            limiter.min_size,
            f"allowed: at most replay.capacity ({replay.capacity:,}); a full store would still be below it and "
            "training never start",
        )
    if limiter.min_size < parameters.batch_size:
        yield Problem(
            "spec.replay.rateLimiter.minSize",
            limiter.min_size,
            f"allowed: at least batchSize ({parameters.batch_size:,}), or a batch would be drawn from fewer "
            "transitions than it holds",
        )
    environments = job.spec.actors.replicas * job.spec.actors.envs_per_actor
    needed = environments * parameters.chunk_length
    if replay.capacity < needed:
        yield Problem(
            "spec.replay.capacity",
            replay.capacity,
            f"allowed: at least {needed:,}, one chunk of {parameters.chunk_length} steps for each of "
            f"{environments:,} environments "
            f"(replicas {job.spec.actors.replicas:,} * envsPerActor {job.spec.actors.envs_per_actor:,}); below it "
            "an actor's chunk would push out "
            "another's before it is ever drawn",
        )
    shard = replay.capacity // replay.shards
    if replay.shards > 1 and shard < parameters.chunk_length:
        yield Problem(
            "spec.replay.shards",
            replay.shards,
            f"allowed: at most {max(1, replay.capacity // parameters.chunk_length):,}; capacity "
            f"{replay.capacity:,} leaves a shard "
            f"{shard:,} transitions, less than one chunk of {parameters.chunk_length}",
        )


def _limiter(job: RLJob, parameters: AlgorithmParameters) -> Iterator[Problem]:
    """Insertion adds ratio * chunk samples to the credit, a batch takes its size; both are blocked for good when the band of
    2 * errorBuffer is narrower than the two together. Twice the chunk's share (the bound Reverb uses) always leaves room."""
    if job.spec.replay is None or not isinstance(parameters, ApeXDQNParameters):
        return
    replay = job.spec.replay.resolved()
    ratio, chunk, batch = replay.samples_per_insert, parameters.chunk_length, parameters.batch_size
    if ratio == 0:
        return
    needed = replay.shards * max(2 * max(1.0, ratio) * chunk, float(batch))
    if replay.error_buffer < needed:
        default = "" if job.spec.replay.rate_limiter.error_buffer is not None else " (the default, from minSize)"
        shards = f"{replay.shards} shards * " if replay.shards > 1 else ""
        yield Problem(
            "spec.replay.rateLimiter.errorBuffer",
            decimal_text(replay.error_buffer),
            f"allowed: at least {decimal_text(needed)} samples{default} = {shards}max(2 * max(1, samplesPerInsert "
            f"{ratio:g}) * "
            f"chunkLength {chunk}, batchSize {batch}); in a narrower band the next chunk may not be inserted and "
            "the next batch not "
            "be drawn, and actors and learner would wait for each other for ever",
        )


def _actors(job: RLJob, parameters: AlgorithmParameters) -> Iterator[Problem]:
    actors, scaling = job.spec.actors, job.spec.autoscaling
    gang = job.spec.scheduling.gang
    if scaling.min_replicas > scaling.max_replicas:
        yield Problem(
            "spec.autoscaling.minReplicas",
            scaling.min_replicas,
            f"allowed: at most maxReplicas ({scaling.max_replicas})",
        )
    elif scaling.mode != "Disabled" and not scaling.min_replicas <= actors.replicas <= scaling.max_replicas:
        yield Problem(
            "spec.actors.replicas",
            actors.replicas,
            f"allowed: from autoscaling.minReplicas ({scaling.min_replicas}) to autoscaling.maxReplicas "
            f"({scaling.max_replicas})",
        )
    if scaling.mode == "Disabled" and actors.replicas == 0:
        yield Problem(
            "spec.actors.replicas",
            0,
            "allowed: at least 1 without autoscaling; nobody would play and training never start",
        )
    fallback = scaling.missing_metrics.fallback
    if (
        scaling.missing_metrics.action == "Fallback"
        and not scaling.min_replicas <= fallback.replicas <= scaling.max_replicas
    ):
        yield Problem(
            "spec.autoscaling.missingMetrics.fallback.replicas",
            fallback.replicas,
            f"allowed: from autoscaling.minReplicas ({scaling.min_replicas}) to autoscaling.maxReplicas "
            f"({scaling.max_replicas})",
        )
    if scaling.rate_window_seconds < scaling.sample_period_seconds:
        yield Problem(
            "spec.autoscaling.rateWindowSeconds",
            scaling.rate_window_seconds,
            f"allowed: at least samplePeriodSeconds ({scaling.sample_period_seconds}); a shorter window holds no "
            "two samples",
        )
    if gang.scheduler != "None" and gang.min_actors > actors.replicas:
        yield Problem(
            "spec.scheduling.gang.minActors",
            gang.min_actors,
            f"allowed: at most actors.replicas ({actors.replicas}); the gang would wait for pods that are never made",
        )


def _verdicts(job: RLJob, parameters: AlgorithmParameters) -> Iterator[Problem]:
    spec = job.spec
    if spec.success_policy.target_return is not None and not spec.evaluator.enabled:
        yield Problem(
            "spec.successPolicy.targetReturn",
            spec.success_policy.target_return.value,
            "allowed: only with evaluator.enabled: true; without evaluations the target could never be seen to "
            "be reached",
        )
    if spec.early_stopping.plateau is not None and not spec.evaluator.enabled:
        yield Problem(
            "spec.earlyStopping.plateau",
            spec.early_stopping.plateau.metric,
            "allowed: only with evaluator.enabled: true; without evaluations there is no evalReturn",
        )
    if spec.evaluator.trigger_return is not None and not spec.evaluator.enabled:
        yield Problem(
            "spec.evaluator.triggerReturn",
            decimal_text(spec.evaluator.trigger_return),
            "allowed: only with evaluator.enabled: true; nobody would be triggered",
        )


def _checkpoints(job: RLJob, parameters: AlgorithmParameters) -> Iterator[Problem]:
    checkpoint = job.spec.checkpoint
    if checkpoint.storage is not None:
        chosen = [
            name
            for name, value in (
                ("persistentVolumeClaim", checkpoint.storage.persistent_volume_claim),
                ("objectStore", checkpoint.storage.object_store),
            )
            if value is not None
        ]
        if len(chosen) != 1:
            yield Problem(
                "spec.checkpoint.storage",
                chosen or ABSENT,
                "allowed: exactly one of persistentVolumeClaim and objectStore",
            )
    elif job.spec.suspend and checkpoint.on_suspend != "Skip":
        yield Problem(
            "spec.suspend",
            True,
            "allowed: only with checkpoint.storage, or with checkpoint.onSuspend: Skip; otherwise all progress "
            "would be lost with the pods",
        )
    if len(set(checkpoint.include)) < len(checkpoint.include):
        yield Problem("spec.checkpoint.include", checkpoint.include, "allowed: each entry once")
    if "Learner" not in checkpoint.include:
        yield Problem(
            "spec.checkpoint.include",
            checkpoint.include,
            "allowed: Learner always, Replay optionally; nothing could be resumed without it",
        )


def _failures(job: RLJob, parameters: AlgorithmParameters) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, rule in enumerate(job.spec.failure_policy.rules):
        path = f"spec.failurePolicy.rules[{i}]"
        if (rule.on_exit_codes is None) == (not rule.on_pod_conditions):
            yield Problem(path, rule.name, "allowed: exactly one of onExitCodes and onPodConditions")
        if rule.name in seen:
            yield Problem(f"{path}.name", rule.name, "allowed: each name once")
        seen.add(rule.name)


def _placement(job: RLJob, parameters: AlgorithmParameters) -> Iterator[Problem]:
    spec = job.spec
    roles: dict[str, RoleSpec] = {"learner": spec.learner, "actors": spec.actors, "evaluator": spec.evaluator}
    roles["inference"] = spec.inference
    if spec.replay is not None:
        roles["replay"] = spec.replay
    for role, section in roles.items():
        for i, toleration in enumerate(section.placement.tolerations):
            path = f"spec.{role}.placement.tolerations[{i}]"
            if toleration.operator == "Exists" and toleration.value:
                yield Problem(f"{path}.value", toleration.value, "allowed: no value with operator Exists")
            if toleration.operator == "Equal" and not toleration.key:
                yield Problem(f"{path}.key", ABSENT, "required with operator Equal; use Exists to tolerate every taint")


_RULES: tuple[Rule, ...] = (
    _sections,
    _queue,
    _signal,
    _inference,
    _sizes,
    _limiter,
    _actors,
    _verdicts,
    _checkpoints,
    _failures,
    _placement,
)

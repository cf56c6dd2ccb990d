"""Rules of ``spec.actors``, ``spec.inference``, ``spec.autoscaling`` and ``spec.learner.processes``: how many there are, and who
decides; a part of every batch for each process of the learner, and experience of its own."""

from rljob.api.job import RLJobSpec
from rljob.api.roles import AutoscalingSpec
from rljob.api.rule import Rule, at_least, at_most


def _parts_are_equal(spec: RLJobSpec) -> bool:
    parameters, processes = spec.algorithm.parameters, spec.learner.processes
    steps = parameters.unroll_length if getattr(parameters, "splits_steps", False) else 1
    minibatches = getattr(parameters, "minibatches", 1) if processes > 1 else 1
    return bool(parameters.batch_size % processes == 0 == parameters.batch_size // processes * steps % minibatches)


def _fewest_actors(spec: RLJobSpec) -> int:
    return spec.actors.replicas if spec.autoscaling.mode == "Disabled" else spec.autoscaling.min_replicas


_RULES = (
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

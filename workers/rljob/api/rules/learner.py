"""Rules of ``spec.learner.processes``: a part of every batch for each process, and experience of its own."""

from rljob.api.job import RLJobSpec
from rljob.api.rule import Outcome, holds, rule

_ALONE = (
    holds(
        "centred_by_one",
        RLJobSpec,
        "environment.centreInput",
        lambda spec: spec.learner.processes == 1 or not spec.environment.centre_input,
        parameters=("batchSize",),
        also=("learner.processes",),
        message="allowed: false with learner.processes above 1; each process would subtract another mean",
    ),
    holds(
        "back_together",
        RLJobSpec,
        "earlyStopping.onNonFiniteLoss",
        lambda spec: spec.learner.processes == 1 or spec.early_stopping.on_non_finite_loss != "RestoreAndContinue",
        parameters=("batchSize",),
        also=("learner.processes",),
        message="allowed: Fail or Ignore with learner.processes above 1",
    ),
)


@rule(
    RLJobSpec,
    "learner.processes",
    parameters=("batchSize",),
    message="allowed: a divisor of batchSize whose quotient minibatches divides; every process learns from an equal part",
)
def an_equal_part_for_each(spec: RLJobSpec) -> Outcome:
    parameters, processes = spec.algorithm.parameters, spec.learner.processes
    minibatches = getattr(parameters, "minibatches", 1)
    steps = parameters.unroll_length if getattr(parameters, "splits_steps", False) else 1
    if processes == 1 or (
        parameters.batch_size % processes == 0 == parameters.batch_size // processes * steps % minibatches
    ):
        return None
    of = f" / minibatches ({minibatches})" if minibatches > 1 else ""
    return f"allowed: a divisor of batchSize ({parameters.batch_size}){of}; every process learns from an equal part"


@rule(
    RLJobSpec,
    "learner.processes",
    parameters=("chunkLength",),
    also=("replay.shards",),
    message="allowed: at most replay.shards; each process draws from shards of its own",
)
def a_shard_for_each(spec: RLJobSpec) -> Outcome:
    replay, processes = spec.replay, spec.learner.processes
    if processes == 1 or replay is None or replay.shards >= processes:
        return None
    return f"allowed: at most replay.shards ({replay.shards}); each process draws from shards of its own"


@rule(
    RLJobSpec,
    "learner.processes",
    parameters=("unrollLength", "batchSize"),
    also=("actors.replicas", "actors.envsPerActor", "autoscaling.mode", "autoscaling.minReplicas"),
    message="allowed: at most the fewest actors; each process learns from unrolls of its own, with PPO of its own actors, whose "
    "environments are at most its part of batchSize",
)
def an_actor_for_each(spec: RLJobSpec) -> Outcome:
    processes, scales = spec.learner.processes, spec.autoscaling.mode != "Disabled"
    actors = spec.autoscaling.min_replicas if scales else spec.actors.replicas
    if processes == 1:
        return None
    if actors < processes:
        return f"allowed: at most {actors}, the fewest actors; each process learns from unrolls of its own actors"
    most = (spec.algorithm.parameters.batch_size // processes) // spec.actors.envs_per_actor
    if spec.algorithm.type == "PPO" and -(-actors // processes) > most:
        return (
            f"allowed: few enough for an unroll of each environment in a process's part of batchSize; here at most {most} "
            "actors a process"
        )
    return None

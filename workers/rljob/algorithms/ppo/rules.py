"""Rules of jobs that PPO learns."""

from rljob.api.job import RLJobSpec
from rljob.api.parameters import ParameterSet
from rljob.api.rule import Rule, at_least

_DIFFER = Rule(
    "advantages_that_differ",
    ParameterSet,
    "minibatches",
    lambda it: not it.normalize_advantages or it.batch_size * it.unroll_length >= 2 * it.minibatches,
    parameters=("minibatches", "normalizeAdvantages", "batchSize", "unrollLength"),
    message="allowed: few enough that a minibatch has two steps or more; the normalised advantage of one step is 0. Use fewer, "
    "or normalizeAdvantages: false",
)
_PLAYED = at_least(
    "an_unroll_of_each_environment",
    RLJobSpec,
    "algorithm.batchSize",
    "actors.replicas * actors.envsPerActor, or at least envsPerActor with autoscaling",
    "an iteration is complete with batchSize unrolls, and the other environments would be played for nothing",
    lambda spec: spec.actors.envs_per_actor * (spec.actors.replicas if spec.autoscaling.mode == "Disabled" else 1),
    algorithm="PPO",
    parameters=("batchSize",),
)

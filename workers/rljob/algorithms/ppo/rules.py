"""Rules of jobs that PPO learns."""

from rljob.api.job import RLJobSpec
from rljob.api.parameters import ParameterSet
from rljob.api.rule import Outcome, holds, rule

_DIFFER = holds(
    "advantages_that_differ",
    ParameterSet,
    "minibatches",
    lambda it: not it.normalize_advantages or it.batch_size * it.unroll_length >= 2 * it.minibatches,
    parameters=("minibatches", "normalizeAdvantages", "batchSize", "unrollLength"),
    message="allowed: few enough that a minibatch has two steps or more; the normalised advantage of one step is 0. Use fewer, "
    "or normalizeAdvantages: false",
)
_NOTHING_TO_PLAY = (
    "allowed: at least actors.replicas * actors.envsPerActor, or at least envsPerActor with autoscaling; an iteration is "
    "complete with batchSize unrolls, and the other environments would be played for nothing"
)


@rule(
    RLJobSpec,
    "algorithm.batchSize",
    algorithm="PPO",
    parameters=("batchSize",),
    also=("actors.envsPerActor", "actors.replicas", "autoscaling.mode"),
    message=_NOTHING_TO_PLAY,
)
def an_unroll_of_each_environment(spec: RLJobSpec) -> Outcome:
    batch, each = spec.algorithm.parameters.batch_size, spec.actors.envs_per_actor
    actors = spec.actors.replicas if spec.autoscaling.mode == "Disabled" else 1
    if batch >= each * actors:
        return None
    return (
        f"allowed: at least {each * actors} (actors {actors} * envsPerActor {each}); an iteration is complete with batchSize "
        "unrolls, and the other environments would be played for nothing"
    )

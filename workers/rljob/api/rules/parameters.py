"""Rules between the hyper-parameters of an algorithm: each is about every algorithm that has all that it reads."""

from typing import Any

from rljob.api.parameters import ParameterSet
from rljob.api.rule import Outcome, at_least, at_most, holds, rule

_OF_THE_TARGET = ("targetUpdateInterval", "targetUpdateTau")
_UNEVEN = "a smaller last minibatch would weight its steps more than the others"
_RULES = (
    at_most(
        "rate_never_grows",
        ParameterSet,
        "learningRateFinal",
        "learningRate",
        "it decays, it does not grow",
        parameters=("learningRateFinal", "learningRate"),
    ),
    holds(
        "rate_decays",
        ParameterSet,
        "learningRateFinal",
        lambda it: it.learning_rate_final >= it.learning_rate or it.learning_rate_decay_steps > 0,
        parameters=("learningRateFinal", "learningRate", "learningRateDecaySteps"),
        message="allowed: below learningRate only with learningRateDecaySteps above 0; without it nothing would decay",
    ),
    at_most(
        "a_window_in_a_chunk",
        ParameterSet,
        "nStep",
        "chunkLength",
        "a longer window never fits into a chunk, so no transition would ever be stored",
        parameters=("nStep", "chunkLength"),
    ),
    holds(
        "one_way_to_the_target",
        ParameterSet,
        "targetUpdateInterval",
        lambda it: it.target_update_tau == 0 or it.target_update_interval == 0,
        parameters=_OF_THE_TARGET,
        message="allowed: 0 or nothing with targetUpdateTau; the target network is then updated gradually and never copied",
    ),
    holds(
        "a_way_to_the_target",
        ParameterSet,
        "targetUpdateInterval",
        lambda it: it.target_update_tau > 0 or it.target_update_interval > 0,
        parameters=_OF_THE_TARGET,
        message="allowed: 1 or more while targetUpdateTau is 0; the target network would never be updated",
    ),
    at_least(
        "a_batch_in_the_queue",
        ParameterSet,
        "unrollQueue.capacity",
        "batchSize",
        "a smaller queue never holds a whole batch of unrolls and training never starts",
        parameters=("unrollQueue.capacity", "batchSize"),
    ),
    holds(
        "one_memory",
        ParameterSet,
        "separateCritic",
        lambda it: not it.separate_critic or it.recurrent == "None",
        parameters=("separateCritic", "recurrent"),
        message="allowed: false with recurrent: LSTM; policy and value share the memory",
    ),
)


@rule(
    ParameterSet,
    "minibatches",
    parameters=("minibatches", "batchSize"),
    message="allowed: a divisor of batchSize unrolls or, with PPO without LSTM, of batchSize * unrollLength steps; "
    f"{_UNEVEN}",
)
def even_minibatches(it: Any) -> Outcome:
    by_steps = getattr(it, "splits_steps", False)
    size = it.batch_size * (it.unroll_length if by_steps else 1)
    if size % it.minibatches == 0:
        return None
    terms = (
        f"batchSize {it.batch_size} * unrollLength {it.unroll_length}, the steps"
        if by_steps
        else "batchSize, the unrolls"
    )
    return f"allowed: a divisor of {size:,} ({terms} that are split); {_UNEVEN}"

"""Rules between the hyper-parameters of an algorithm: each is about every algorithm that has all that it reads."""

from __future__ import annotations

from typing import Any

from rljob.api.parameters import ParameterSet
from rljob.api.rule import Outcome, rule

_NO_DECAY = "allowed: below learningRate only with learningRateDecaySteps above 0; without it nothing would decay"


@rule(
    ParameterSet,
    "learningRateFinal",
    parameters=("learningRateFinal", "learningRate"),
    message="allowed: at most learningRate; it decays, it does not grow",
)
def rate_never_grows(it: Any) -> Outcome:
    if it.learning_rate_final <= it.learning_rate:
        return None
    return f"allowed: at most learningRate ({it.learning_rate:g}); it decays, it does not grow"


@rule(
    ParameterSet,
    "learningRateFinal",
    parameters=("learningRateFinal", "learningRate", "learningRateDecaySteps"),
    message=_NO_DECAY,
)
def rate_decays(it: Any) -> Outcome:
    same = it.learning_rate_final >= it.learning_rate
    return None if same or it.learning_rate_decay_steps > 0 else _NO_DECAY


@rule(
    ParameterSet,
    "nStep",
    parameters=("nStep", "chunkLength"),
    message="allowed: at most chunkLength, or no transition would ever be stored",
)
def a_window_in_a_chunk(it: Any) -> Outcome:
    if it.n_step <= it.chunk_length:
        return None
    return (
        f"allowed: at most chunkLength; a window of {it.n_step} steps never fits into a chunk of {it.chunk_length}, so no "
        "transition would ever be stored"
    )


@rule(
    ParameterSet,
    "targetUpdateInterval",
    parameters=("targetUpdateInterval", "targetUpdateTau"),
    message="allowed: 0 or nothing beside targetUpdateTau, which updates the target network little by little and never copies it",
)
def one_way_to_the_target(it: Any) -> Outcome:
    if it.target_update_tau == 0 or it.target_update_interval == 0:
        return None
    return (
        f"allowed: 0 or nothing beside targetUpdateTau ({it.target_update_tau:g}), which updates the target network little by "
        "little and never copies it"
    )


_NEVER_UPDATED = "allowed: 1 or more while targetUpdateTau is 0; the target network would never be updated"


@rule(
    ParameterSet,
    "targetUpdateInterval",
    parameters=("targetUpdateInterval", "targetUpdateTau"),
    message=_NEVER_UPDATED,
)
def a_way_to_the_target(it: Any) -> Outcome:
    return None if it.target_update_tau > 0 or it.target_update_interval > 0 else _NEVER_UPDATED


_UNEVEN = "a smaller last minibatch would weigh its steps more than the others'"


@rule(
    ParameterSet,
    "minibatches",
    parameters=("minibatches", "batchSize"),
    message="allowed: a divisor of what is split: with PPO and without memory batchSize * unrollLength steps, else batchSize "
    f"unrolls; {_UNEVEN}",
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


@rule(
    ParameterSet,
    "unrollQueue.capacity",
    parameters=("unrollQueue.capacity", "batchSize"),
    message="allowed: at least the algorithm's batchSize (unrolls); a smaller queue never holds a whole batch and training "
    "never starts",
)
def a_batch_in_the_queue(it: Any) -> Outcome:
    if it.unroll_queue.capacity >= it.batch_size:
        return None
    return (
        f"allowed: at least batchSize ({it.batch_size:,} unrolls); a smaller queue never holds a whole batch and training never "
        "starts"
    )


_ONE_MEMORY = "allowed: false with recurrent: LSTM; policy and value share the memory"


@rule(ParameterSet, "separateCritic", parameters=("separateCritic", "recurrent"), message=_ONE_MEMORY)
def one_memory(it: Any) -> Outcome:
    return _ONE_MEMORY if it.separate_critic and it.recurrent != "None" else None

"""Rules between the hyper-parameters of an algorithm."""

from __future__ import annotations

from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.impala import ImpalaParameters
from rljob.api.rule import Outcome, rule

_NO_GROWTH = "allowed: at most learningRate; it decays, it does not grow"
_NO_GROWTH_CEL = "self.learningRateFinal <= self.learningRate"
_NO_DECAY = "allowed: below learningRate only with learningRateDecaySteps above 0; without it nothing would decay"
_DECAY_CEL = "self.learningRateFinal >= self.learningRate || self.learningRateDecaySteps > 0"


def _never_grows(it: ApeXDQNParameters | ImpalaParameters) -> Outcome:
    if it.learning_rate_final <= it.learning_rate:
        return None
    return f"allowed: at most learningRate ({it.learning_rate:g}); it decays, it does not grow"


def _decays(it: ApeXDQNParameters | ImpalaParameters) -> Outcome:
    same = it.learning_rate_final >= it.learning_rate
    return None if same or it.learning_rate_decay_steps > 0 else _NO_DECAY


@rule(ApeXDQNParameters, "learningRateFinal", cel=_NO_GROWTH_CEL, message=_NO_GROWTH)
def apex_rate_never_grows(it: ApeXDQNParameters) -> Outcome:
    return _never_grows(it)


@rule(ImpalaParameters, "learningRateFinal", cel=_NO_GROWTH_CEL, message=_NO_GROWTH)
def impala_rate_never_grows(it: ImpalaParameters) -> Outcome:
    return _never_grows(it)


@rule(ApeXDQNParameters, "learningRateFinal", cel=_DECAY_CEL, message=_NO_DECAY)
def apex_rate_decays(it: ApeXDQNParameters) -> Outcome:
    return _decays(it)


@rule(ImpalaParameters, "learningRateFinal", cel=_DECAY_CEL, message=_NO_DECAY)
def impala_rate_decays(it: ImpalaParameters) -> Outcome:
    return _decays(it)


@rule(
    ApeXDQNParameters,
    "nStep",
    cel="self.nStep <= self.chunkLength",
    message="allowed: at most chunkLength, or no transition would ever be stored",
)
def a_window_in_a_chunk(it: ApeXDQNParameters) -> Outcome:
    if it.n_step <= it.chunk_length:
        return None
    return (
        f"allowed: at most chunkLength; a window of {it.n_step} steps never fits into a chunk of {it.chunk_length}, so no "
        "transition would ever be stored"
    )


@rule(
    ApeXDQNParameters,
    "targetUpdateInterval",
    cel="self.targetUpdateTau == 0.0 || self.targetUpdateInterval == 0",
    message="allowed: 0 or nothing beside targetUpdateTau, which updates the target network little by little and never copies it",
)
def one_way_to_the_target(it: ApeXDQNParameters) -> Outcome:
    if it.target_update_tau == 0 or it.target_update_interval == 0:
        return None
    return (
        f"allowed: 0 or nothing beside targetUpdateTau ({it.target_update_tau:g}), which updates the target network little by "
        "little and never copies it"
    )


@rule(
    ApeXDQNParameters,
    "targetUpdateInterval",
    cel="self.targetUpdateTau > 0.0 || self.targetUpdateInterval > 0",
    message="allowed: 1 or more while targetUpdateTau is 0; the target network would never be updated",
)
def a_way_to_the_target(it: ApeXDQNParameters) -> Outcome:
    if it.target_update_tau > 0 or it.target_update_interval > 0:
        return None
    return "allowed: 1 or more while targetUpdateTau is 0; the target network would never be updated"


@rule(
    ImpalaParameters,
    "cClip",
    cel="self.cClip <= self.rhoClip",
    message="allowed: at most rhoClip; V-trace is defined for cClip <= rhoClip only",
)
def c_clip_below_rho_clip(it: ImpalaParameters) -> Outcome:
    if it.c_clip <= it.rho_clip:
        return None
    return f"allowed: at most rhoClip ({it.rho_clip:g}); V-trace is defined for cClip <= rhoClip only"


@rule(
    ImpalaParameters,
    "minibatches",
    cel="self.loss == 'ClippedSurrogate' && self.recurrent == 'None' "
    "? self.batchSize * self.unrollLength % self.minibatches == 0 : self.batchSize % self.minibatches == 0",
    message="allowed: a divisor of what is split: batchSize * unrollLength steps for ClippedSurrogate without memory, else "
    "batchSize unrolls; a smaller last minibatch would weigh its steps more than the others'",
)
def even_minibatches(it: ImpalaParameters) -> Outcome:
    by_steps = it.loss == "ClippedSurrogate" and it.recurrent == "None"
    size = it.batch_size * (it.unroll_length if by_steps else 1)
    if size % it.minibatches == 0:
        return None
    terms = f"batchSize {it.batch_size} * unrollLength {it.unroll_length}" if by_steps else "batchSize"
    unit = "steps" if by_steps else "unrolls"
    return (
        f"allowed: a divisor of {size:,} ({terms}, the {unit} of a batch); a smaller last minibatch would weigh its steps more "
        "than the others'"
    )


@rule(
    ImpalaParameters,
    "weightsRefreshSteps",
    cel="self.weightsRefreshSteps <= self.unrollLength",
    message="allowed: at most unrollLength; 0 looks for newer weights only between unrolls",
)
def weights_refreshed_within_an_unroll(it: ImpalaParameters) -> Outcome:
    if it.weights_refresh_steps <= it.unroll_length:
        return None
    return f"allowed: at most unrollLength ({it.unroll_length}); 0 looks for newer weights only between unrolls"


@rule(
    ImpalaParameters,
    "correctOffPolicy",
    cel="self.correctOffPolicy || self.loss == 'VTrace'",
    message="allowed: false only with loss VTrace; ClippedSurrogate has no importance weights to leave out",
)
def only_v_trace_corrects(it: ImpalaParameters) -> Outcome:
    if it.correct_off_policy or it.loss == "VTrace":
        return None
    return "allowed: false only with loss VTrace; ClippedSurrogate has no importance weights to leave out"


@rule(
    ImpalaParameters,
    "unrollQueue.capacity",
    cel="self.unrollQueue.capacity >= self.batchSize",
    message="allowed: at least the algorithm's batchSize (unrolls); a smaller queue never holds a whole batch and training "
    "never starts",
)
def a_batch_in_the_queue(it: ImpalaParameters) -> Outcome:
    if it.unroll_queue.capacity >= it.batch_size:
        return None
    return (
        f"allowed: at least batchSize ({it.batch_size:,} unrolls); a smaller queue never holds a whole batch and training never "
        "starts"
    )

"""Rules between the hyper-parameters of an algorithm."""

from __future__ import annotations

from rljob.api.actor_critic import ActorCriticParameters
from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.impala import ImpalaParameters
from rljob.api.learner_parameters import LearnerParameterSet
from rljob.api.ppo import PPOParameters
from rljob.api.rule import Outcome, rule, rule_of_several
from rljob.api.sac import SACParameters
from rljob.api.transition_parameters import TransitionParameterSet

_NO_DECAY = "allowed: below learningRate only with learningRateDecaySteps above 0; without it nothing would decay"
_REPLAYED = (ApeXDQNParameters, SACParameters)
_WITH_A_RATE = (*_REPLAYED, ImpalaParameters, PPOParameters)


@rule_of_several(
    _WITH_A_RATE,
    "learningRateFinal",
    cel="self.learningRateFinal <= self.learningRate",
    message="allowed: at most learningRate; it decays, it does not grow",
)
def rate_never_grows(it: LearnerParameterSet) -> Outcome:
    if it.learning_rate_final <= it.learning_rate:
        return None
    return f"allowed: at most learningRate ({it.learning_rate:g}); it decays, it does not grow"


@rule_of_several(
    _WITH_A_RATE,
    "learningRateFinal",
    cel="self.learningRateFinal >= self.learningRate || self.learningRateDecaySteps > 0",
    message=_NO_DECAY,
)
def rate_decays(it: LearnerParameterSet) -> Outcome:
    same = it.learning_rate_final >= it.learning_rate
    return None if same or it.learning_rate_decay_steps > 0 else _NO_DECAY


@rule_of_several(
    _REPLAYED,
    "nStep",
    cel="self.nStep <= self.chunkLength",
    message="allowed: at most chunkLength, or no transition would ever be stored",
)
def a_window_in_a_chunk(it: TransitionParameterSet) -> Outcome:
    if it.n_step <= it.chunk_length:
        return None
    return (
        f"allowed: at most chunkLength; a window of {it.n_step} steps never fits into a chunk of {it.chunk_length}, so no "
        "transition would ever be stored"
    )


@rule_of_several(
    _REPLAYED,
    "targetUpdateInterval",
    cel="self.targetUpdateTau == 0.0 || self.targetUpdateInterval == 0",
    message="allowed: 0 or nothing beside targetUpdateTau, which updates the target network little by little and never copies it",
)
def one_way_to_the_target(it: TransitionParameterSet) -> Outcome:
    if it.target_update_tau == 0 or it.target_update_interval == 0:
        return None
    return (
        f"allowed: 0 or nothing beside targetUpdateTau ({it.target_update_tau:g}), which updates the target network little by "
        "little and never copies it"
    )


@rule_of_several(
    _REPLAYED,
    "targetUpdateInterval",
    cel="self.targetUpdateTau > 0.0 || self.targetUpdateInterval > 0",
    message="allowed: 1 or more while targetUpdateTau is 0; the target network would never be updated",
)
def a_way_to_the_target(it: TransitionParameterSet) -> Outcome:
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


_UNEVEN = "a smaller last minibatch would weigh its steps more than the others'"


@rule(
    ImpalaParameters,
    "minibatches",
    cel="self.batchSize % self.minibatches == 0",
    message=f"allowed: a divisor of batchSize, the unrolls that are split; {_UNEVEN}",
)
def even_minibatches(it: ImpalaParameters) -> Outcome:
    if it.batch_size % it.minibatches == 0:
        return None
    return f"allowed: a divisor of {it.batch_size:,} (batchSize, the unrolls that are split); {_UNEVEN}"


@rule(
    PPOParameters,
    "minibatches",
    cel="self.recurrent == 'None' ? self.batchSize * self.unrollLength % self.minibatches == 0 : "
    "self.batchSize % self.minibatches == 0",
    message="allowed: a divisor of what is split: batchSize * unrollLength steps without memory, else batchSize unrolls; "
    f"{_UNEVEN}",
)
def even_minibatches_of_an_iteration(it: PPOParameters) -> Outcome:
    by_steps = it.recurrent == "None"
    size = it.batch_size * (it.unroll_length if by_steps else 1)
    if size % it.minibatches == 0:
        return None
    terms = f"batchSize {it.batch_size} * unrollLength {it.unroll_length}" if by_steps else "batchSize"
    unit = "steps" if by_steps else "unrolls"
    return f"allowed: a divisor of {size:,} ({terms}, the {unit} of an iteration); {_UNEVEN}"


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


_ONE_STEP = (
    "allowed: so few that a minibatch has two steps or more; normalised, the advantage of a single one is 0 and no policy is "
    "learned. Fewer, or normalizeAdvantages: false"
)


@rule(
    PPOParameters,
    "minibatches",
    cel="!self.normalizeAdvantages || self.batchSize * self.unrollLength >= 2 * self.minibatches",
    message=_ONE_STEP,
)
def advantages_that_differ(it: PPOParameters) -> Outcome:
    return _ONE_STEP if it.normalize_advantages and it.batch_size * it.unroll_length < 2 * it.minibatches else None


_ONE_MEMORY = "allowed: false with recurrent: LSTM; policy and value share the memory"
_ONE_MEMORY_CEL = "!self.separateCritic || self.recurrent == 'None'"


def _shares_its_memory(it: ActorCriticParameters) -> Outcome:
    return _ONE_MEMORY if it.separate_critic and it.recurrent != "None" else None


@rule(ImpalaParameters, "separateCritic", cel=_ONE_MEMORY_CEL, message=_ONE_MEMORY)
def impala_shares_its_memory(it: ImpalaParameters) -> Outcome:
    return _shares_its_memory(it)


@rule(PPOParameters, "separateCritic", cel=_ONE_MEMORY_CEL, message=_ONE_MEMORY)
def ppo_shares_its_memory(it: PPOParameters) -> Outcome:
    return _shares_its_memory(it)

"""Rules of the algorithm's type, of its block, and of the preset that may name both; of the environment; of hyper-parameters.

A rule between hyper-parameters is about every algorithm that has all that it reads.
"""

from typing import Any

from rljob.api.algorithm import BLOCKS
from rljob.api.environment import EnvironmentSource
from rljob.api.job import RLJobSpec
from rljob.api.parameters import ParameterSet
from rljob.api.presets import PRESETS
from rljob.api.rule import Rule, at_least, at_most


def _presets_of(algorithm: str) -> str:
    return ", ".join(f"'{name}'" for name, preset in PRESETS.items() if preset.algorithm_type == algorithm)


_OF_PRESET = "(" + "".join(f"self.preset in [{_presets_of(each)}] ? '{each}' : " for each in BLOCKS) + "'')"
_FITS = f"!has(self.preset) || !has(self.algorithm) || !has(self.algorithm.type) || self.algorithm.type == {_OF_PRESET}"
_OF_BLOCK = " : ".join(
    [*(f"has(self.algorithm) && has(self.algorithm.{block}) ? '{type}'" for type, block in BLOCKS.items()), "'PPO'"]
)
TYPE = (
    "(has(self.algorithm) && has(self.algorithm.type) ? self.algorithm.type : "
    f"has(self.preset) ? {_OF_PRESET} : {_OF_BLOCK})"
)
"""CEL: the algorithm's type: written, that of the preset or of the block, or the default."""
_ALONE = ", ".join(
    f"'{type}': {' && '.join(f'!has(self.algorithm.{other})' for other in BLOCKS.values() if other != block)}"
    for type, block in BLOCKS.items()
)
"""CEL: the entries of a map from a type to whether no other type's block is there."""
_ANOTHER = "allowed: only the block of the algorithm's own type, " + ", ".join(
    f"{block} for {type}" for type, block in BLOCKS.items()
)
_WITHOUT_ENVIRONMENT = [name for name, preset in PRESETS.items() if not preset.environment_id]


def _fits_the_preset(spec: RLJobSpec) -> bool:
    return spec.preset is None or spec.algorithm.type == PRESETS[spec.preset].algorithm_type


def _blocks_of_others(spec: RLJobSpec) -> list[str]:
    own = BLOCKS[spec.algorithm.type]
    return [name for name in BLOCKS.values() if getattr(spec.algorithm, name) is not None and name != own]


an_environment_or_a_preset = Rule(
    "an_environment_or_a_preset",
    RLJobSpec,
    "",
    lambda spec: True,  # the types require it, and `rljob.api.structure` says this message where one is missing
    reason="FieldValueRequired",
    cel="has(self.environment) && has(self.environment.id) || "
    f"has(self.preset) && !(self.preset in {_WITHOUT_ENVIRONMENT})",
    message=f"required: environment.id, or a preset that names one ({', '.join(_WITHOUT_ENVIRONMENT)} do not)",
)
_OF_THE_TYPE = (
    Rule(
        "a_factory_of_its_own",
        RLJobSpec,
        "algorithm.custom",
        # Beside a preset, Custom is the wrong type anyhow.
        lambda spec: spec.algorithm.type != "Custom" or spec.preset is not None or spec.algorithm.custom is not None,
        reason="FieldValueRequired",
        cel="has(self.preset) || !has(self.algorithm) || !has(self.algorithm.type) || self.algorithm.type != 'Custom' || "
        "has(self.algorithm.custom)",
        message="required with type Custom: the algorithm's factory",
    ),
    Rule(
        "type_of_the_preset",
        RLJobSpec,
        "algorithm.type",
        _fits_the_preset,
        "allowed: the type of the preset's algorithm, or nothing, which means the same",
        lambda spec: f"preset {spec.preset} is made for {PRESETS[spec.preset].algorithm_type}",
        cel=_FITS,
    ),
    Rule(
        "block_of_the_type",
        RLJobSpec,
        "algorithm",
        lambda spec: not (_fits_the_preset(spec) and _blocks_of_others(spec)),
        _ANOTHER,
        lambda spec: f"of {spec.algorithm.type}: remove {', '.join(_blocks_of_others(spec))}",
        reason="FieldValueForbidden",
        cel=f"!has(self.algorithm) || !({_FITS}) || "  # else the type is wrong, and the preset's own block stands beside it
        + f"{{{_ALONE}}}[{TYPE}]",
    ),
)


def _normalizes_when_asked(spec: RLJobSpec) -> bool:
    """PPO's default is to normalise, which is said of vectors; pictures can be centred beside it."""
    parameters = spec.algorithm.parameters
    default = type(parameters).model_fields["normalize_observations"].default
    return bool(parameters.normalize_observations and not default)


_OF_THE_ENVIRONMENT = (
    at_least(
        "a_step_in_a_game",
        EnvironmentSource,
        "maxEpisodeRawFrames",
        "atari.frameSkip",
        "a game would end before its first step",
    ),
    Rule(
        "one_mean_of_an_observation",
        RLJobSpec,
        "environment.centreInput",
        lambda spec: not (spec.environment.centre_input and _normalizes_when_asked(spec)),
        parameters=("normalizeObservations",),
        message="allowed: false with normalizeObservations: true; both would subtract a mean from the observation",
    ),
    Rule(
        "a_memory_that_lasts_a_game",
        RLJobSpec,
        "environment.atari.lifeLoss",
        lambda spec: spec.algorithm.parameters.recurrent == "None" or spec.environment.atari.life_loss != "EndsEpisode",
        parameters=("recurrent",),
        message="allowed: Ignore with recurrent: LSTM; a lost life would clear the memory in training, but not in evaluations",
    ),
    Rule(
        "different_actions",
        EnvironmentSource,
        "actions",
        lambda it: len(set(it.action_subset)) == len(it.action_subset),
        "allowed: each action number once",
        reason="FieldValueDuplicate",
    ),
    Rule(
        "one_choice_of_actions",
        EnvironmentSource,
        "actions",
        lambda it: not (it.action_subset and it.atari.full_action_space),
        "allowed: actions or atari.fullActionSpace, not both; actions counts in the minimal set",
    ),
)


def _split(it: Any) -> int:
    """The unrolls or steps of a batch that minibatches split."""
    return int(it.batch_size * (it.unroll_length if getattr(it, "splits_steps", False) else 1))


_OF_THE_TARGET = ("targetUpdateInterval", "targetUpdateTau")
_OF_PARAMETERS = (
    at_most(
        "rate_never_grows",
        ParameterSet,
        "learningRateFinal",
        "learningRate",
        "it decays, it does not grow",
        parameters=("learningRateFinal", "learningRate"),
    ),
    Rule(
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
    Rule(
        "one_way_to_the_target",
        ParameterSet,
        "targetUpdateInterval",
        lambda it: it.target_update_tau == 0 or it.target_update_interval == 0,
        parameters=_OF_THE_TARGET,
        message="allowed: 0 or nothing with targetUpdateTau; the target network is then updated gradually and never copied",
    ),
    Rule(
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
    Rule(
        "one_memory",
        ParameterSet,
        "separateCritic",
        lambda it: not it.separate_critic or it.recurrent == "None",
        parameters=("separateCritic", "recurrent"),
        message="allowed: false with recurrent: LSTM; policy and value share the memory",
    ),
    Rule(
        "even_minibatches",
        ParameterSet,
        "minibatches",
        lambda it: _split(it) % it.minibatches == 0,
        "allowed: a divisor of batchSize unrolls or, with PPO without LSTM, of batchSize * unrollLength steps; "
        "a smaller last minibatch would weight its steps more than the others",
        lambda it: f"of {_split(it):,}",
        parameters=("minibatches", "batchSize"),
    ),
)

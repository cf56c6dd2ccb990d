"""Rules of ``spec.environment``."""

from rljob.api.environment import EnvironmentSource
from rljob.api.job import RLJobSpec
from rljob.api.rule import Broken, Outcome, at_least, holds, rule

_ONE_CHOICE = "allowed: actions or atari.fullActionSpace, not both; actions counts in the minimal set"
_ONCE = "allowed: each action number once"
_RULES = (
    at_least(
        "a_step_in_a_game",
        EnvironmentSource,
        "maxEpisodeRawFrames",
        "atari.frameSkip",
        "a game would end before its first step",
        also=("atari.frameSkip",),
    ),
    holds(
        "one_mean_of_an_observation",
        RLJobSpec,
        "environment.centreInput",
        lambda spec: not (spec.environment.centre_input and _normalizes_when_asked(spec)),
        parameters=("normalizeObservations",),
        message="allowed: false with normalizeObservations: true; both would subtract a mean from the observation",
    ),
    holds(
        "a_memory_that_lasts_a_game",
        RLJobSpec,
        "environment.atari.lifeLoss",
        lambda spec: spec.algorithm.parameters.recurrent == "None" or spec.environment.atari.life_loss != "EndsEpisode",
        parameters=("recurrent",),
        message="allowed: Ignore with recurrent: LSTM; a lost life would clear the memory in training, but not in evaluations",
    ),
)


def _normalizes_when_asked(spec: RLJobSpec) -> bool:
    """PPO's default is to normalise, which is said of vectors; pictures can be centred beside it."""
    parameters = spec.algorithm.parameters
    default = type(parameters).model_fields["normalize_observations"].default
    return bool(parameters.normalize_observations and not default)


@rule(EnvironmentSource, "actions", message=_ONCE, reason="FieldValueDuplicate")
def different_actions(environment: EnvironmentSource) -> Outcome:
    actions = environment.action_subset
    return None if len(set(actions)) == len(actions) else Broken(_ONCE, environment.actions)


@rule(EnvironmentSource, "actions", message=_ONE_CHOICE)
def one_choice_of_actions(environment: EnvironmentSource) -> Outcome:
    both = environment.action_subset and environment.atari.full_action_space
    return Broken(_ONE_CHOICE, environment.actions) if both else None

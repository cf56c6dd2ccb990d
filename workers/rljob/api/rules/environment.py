"""Rules of ``spec.environment``."""

from __future__ import annotations

from rljob.api.environment import EnvironmentSource
from rljob.api.job import RLJobSpec
from rljob.api.rule import Broken, Outcome, rule

_ONE_CHOICE = "allowed: actions or atari.fullActionSpace, not both; actions counts in the minimal set"
_TOO_SHORT = "allowed: at least atari.frameSkip; a game would end before its first step"


@rule(
    EnvironmentSource,
    "actions",
    message="allowed: each action number once",
    reason="FieldValueDuplicate",
)
def different_actions(environment: EnvironmentSource) -> Outcome:
    actions = environment.action_subset
    return (
        None if len(set(actions)) == len(actions) else Broken("allowed: each action number once", environment.actions)
    )


@rule(
    EnvironmentSource,
    "actions",
    message=_ONE_CHOICE,
)
def one_choice_of_actions(environment: EnvironmentSource) -> Outcome:
    both = environment.action_subset and environment.atari.full_action_space
    return Broken(_ONE_CHOICE, environment.actions) if both else None


@rule(
    EnvironmentSource,
    "maxEpisodeRawFrames",
    also=("atari.frameSkip",),
    message=_TOO_SHORT,
)
def a_step_in_a_game(environment: EnvironmentSource) -> Outcome:
    if environment.max_episode_raw_frames >= environment.atari.frame_skip:
        return None
    return f"allowed: at least atari.frameSkip ({environment.atari.frame_skip}); a game would end before its first step"


_ONE_MEAN = "allowed beside normalizeObservations: false; both would subtract a mean from what is observed"


@rule(
    RLJobSpec,
    "environment.centreInput",
    parameters=("normalizeObservations",),
    message=_ONE_MEAN,
)
def one_mean_of_an_observation(spec: RLJobSpec) -> Outcome:
    """PPO's default is to normalise, which is said of vectors; pictures can be centred beside it."""
    parameters = spec.algorithm.parameters
    asked = parameters.normalize_observations and not type(parameters).model_fields["normalize_observations"].default
    return _ONE_MEAN if asked and spec.environment.centre_input else None


_FORGETS = (
    "allowed with recurrent: LSTM: Ignore; a lost life would clear the memory in training, not where it is judged"
)


@rule(
    RLJobSpec,
    "environment.atari.lifeLoss",
    parameters=("recurrent",),
    message=_FORGETS,
)
def a_memory_that_lasts_a_game(spec: RLJobSpec) -> Outcome:
    remembers = spec.algorithm.parameters.recurrent == "LSTM"
    return _FORGETS if remembers and spec.environment.atari.life_loss == "EndsEpisode" else None

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
    cel="self.actions.all(one, self.actions.exists_one(other, one == other))",
    message="allowed: each action number once",
    reason="FieldValueDuplicate",
)
def different_actions(environment: EnvironmentSource) -> Outcome:
    actions = environment.actions
    return None if len(set(actions)) == len(actions) else Broken("allowed: each action number once", actions)


@rule(
    EnvironmentSource,
    "actions",
    cel="self.actions.size() == 0 || !self.atari.fullActionSpace",
    message=_ONE_CHOICE,
)
def one_choice_of_actions(environment: EnvironmentSource) -> Outcome:
    both = environment.actions and environment.atari.full_action_space
    return Broken(_ONE_CHOICE, environment.actions) if both else None


@rule(
    EnvironmentSource,
    "maxEpisodeRawFrames",
    cel="self.maxEpisodeRawFrames >= self.atari.frameSkip",
    message=_TOO_SHORT,
)
def a_step_in_a_game(environment: EnvironmentSource) -> Outcome:
    if environment.max_episode_raw_frames >= environment.atari.frame_skip:
        return None
    return f"allowed: at least atari.frameSkip ({environment.atari.frame_skip}); a game would end before its first step"


_FORGETS = (
    "allowed with recurrent: LSTM: Ignore; a lost life would clear the memory in training, not where it is judged"
)


@rule(
    RLJobSpec,
    "environment.atari.lifeLoss",
    cel="!has(self.environment) || !has(self.environment.atari) || !has(self.environment.atari.lifeLoss) || "
    "self.environment.atari.lifeLoss != 'EndsEpisode' || "
    "!has(self.algorithm) || !has(self.algorithm.impala) || !has(self.algorithm.impala.recurrent) || "
    "self.algorithm.impala.recurrent != 'LSTM'",
    message=_FORGETS,
)
def a_memory_that_lasts_a_game(spec: RLJobSpec) -> Outcome:
    impala = spec.algorithm.impala
    if impala is None or impala.recurrent != "LSTM" or spec.environment.atari.life_loss != "EndsEpisode":
        return None
    return _FORGETS

"""``spec.environment``: which environment, and how its observations and rewards are prepared."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from rljob.api.parameters import NamedParameter, ParameterRule, ParameterSet, check, required
from rljob.api.problems import Problem
from rljob.api.types import APIModel, Flag, Integer, JSONObjectText, Real, Text, refuse

_ACTIONS = 'allowed: different action numbers from 0 to 1023 with commas, such as "0,2,3", or "" for all'


def _action_numbers(value: Any) -> Any:
    """``"0,2,3"`` -> (0, 2, 3); a single number may have become an integer on the way."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")] if value.strip() else []
        if not all(part.isdecimal() for part in parts):
            raise refuse(_ACTIONS)
        value = tuple(int(part) for part in parts)
    if not isinstance(value, tuple | list) or any(number > 1023 for number in value) or len(set(value)) < len(value):
        raise refuse(_ACTIONS)
    return tuple(value)


def _word(value: Any) -> Any:
    """What a manifest's ``true`` and ``false`` became on the way, as the words."""
    return str(value).lower() if isinstance(value, bool) else value


class EnvironmentParameters(ParameterSet):
    """How an environment is stepped and seen, each usable in ``spec.environment.parameters`` under its camelCase name.

    The Atari defaults are those of Mnih et al. 2015. A raw frame is one frame of the emulator; a step is frameSkip of
    them.
    """

    frame_size: Annotated[int, Integer(16, 512)] = 84
    """Height and width of a frame after scaling, in pixels."""
    frame_stack: Annotated[int, Integer(1, 16)] = 4
    """Newest frames an observation holds; only images of bytes are stacked."""
    frame_skip: Annotated[int, Integer(1, 32)] = 4
    """Raw frames that one action is held for."""
    max_pool: Flag = True
    """Take the brighter pixel of the last two raw frames (sprites that flicker)."""
    noop_max: Annotated[int, Integer(0, 1000)] = 30
    """Largest random number of idle raw frames at the start of a game."""
    reward_clipping: Annotated[Literal["Auto", "true", "false"], BeforeValidator(_word)] = "Auto"
    """Train on rewards clipped to [-1, 1], which of a game's whole points are their sign. Auto: on for Atari games, off for
    everything else. Scores shown to people are never clipped."""
    life_loss: Literal["Ignore", "EndsEpisode"] = "Ignore"
    """EndsEpisode: a lost life ends the return (discount 0) while the game goes on."""
    fire_reset: Flag = False
    """Press FIRE at the start of a game, where nothing moves before it."""
    sticky_action_probability: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Chance that the emulator repeats the previous action (Machado et al. 2018 use 0.25)."""
    actions: Annotated[tuple[int, ...], BeforeValidator(_action_numbers)] = Field(default=(), max_length=1024)
    """Numbers of the actions the agent may take, out of the environment's minimal set; empty means all."""
    full_action_space: Flag = False
    """All 18 Atari actions instead of the game's minimal set."""
    max_episode_raw_frames: Annotated[int, Integer(1)] = 108_000
    """Raw frames after which a game is truncated (108,000 = 30 minutes)."""
    backend: Literal["Auto", "Native", "Async", "Sync"] = "Auto"
    """Native: the environment's own vector code. Async: one process an environment. Sync: one after the other. Auto:
    the first that works."""
    max_failures_per_10000_steps: Annotated[int, Integer(0, 10_000)] = 10
    """How often the environments of an actor (or of the evaluator) may raise or lose their process within 10,000 of their steps.
    Each time the environment is made anew and its episode dropped; once more, and the process ends with the reason. 0:
    the first failure ends it."""
    centre_input: Flag = False
    """Subtract the mean frame, measured from the first stored frames, before the network."""
    input_scale: Annotated[float, Real(0, above=True)] | None = None
    """Factor on the (centred) input; 1/255 for bytes and 1 for floats unless given."""
    kwargs: Annotated[str, JSONObjectText()] = "{}"
    """Further keyword arguments of gymnasium.make or of the user's factory, as the text of a JSON object."""

    rules = (
        ParameterRule(
            "actions",
            "$actions == '' || !$fullActionSpace",
            "actions or fullActionSpace, not both; actions counts in the minimal set",
            lambda it: (
                "actions or fullActionSpace, not both; actions counts in the minimal set"
                if it.actions and it.full_action_space
                else None
            ),
        ),
        ParameterRule(
            "maxEpisodeRawFrames",
            "$maxEpisodeRawFrames >= $frameSkip",
            "maxEpisodeRawFrames >= frameSkip; a game would end before its first step",
            lambda it: (
                "maxEpisodeRawFrames >= frameSkip; a game would end before its first step"
                if it.max_episode_raw_frames < it.frame_skip
                else None
            ),
        ),
    )

    @property
    def factory_options(self) -> dict[str, Any]:
        """``kwargs``, parsed."""
        options: dict[str, Any] = json.loads(self.kwargs)
        return options


class EnvironmentSource(APIModel):
    """The environment that actors step and the evaluator scores."""

    id: Annotated[
        str,
        Text(
            253,
            'a Gymnasium id ("ALE/Pong-v5", "CartPole-v1") or "module:factory"',
            r"^[A-Za-z_][A-Za-z0-9_./-]*(:[A-Za-z_][A-Za-z0-9_./-]*)?$",
        ),
    ]
    """A Gymnasium id, or ``module:factory`` where factory(**kwargs) returns a gymnasium.Env."""
    parameters: list[NamedParameter] = Field(default_factory=list, max_length=64)
    """How it is stepped and seen, by name."""

    def checked(self) -> tuple[EnvironmentParameters, list[Problem]]:
        """The typed parameters and every problem; wrong values are replaced by defaults."""
        return check(EnvironmentParameters, self.parameters, "spec.environment.parameters")

    def resolved(self) -> EnvironmentParameters:
        """The typed parameters. Raises ManifestError on unknown names and bad values."""
        return required(self.checked())

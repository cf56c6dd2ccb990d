"""``spec.environment``: which environment, and how its observations and rewards are prepared."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.parameters import ParameterSet
from rljob.api.problems import value_at
from rljob.api.types import FACTORY_PATTERN, APIModel, Flag, Integer, JSONObject, ListOrWord, Real, Text


class AtariParameters(ParameterSet):
    """How a game of the Arcade Learning Environment is played and seen. The defaults are those of Mnih et al. 2015."""

    frame_skip: Annotated[int, Integer(1, 32)] = 4
    """Raw frames for which an action is held."""
    max_pool: Flag = True
    """Take the brighter pixel of the last two raw frames."""
    frame_size: Annotated[int, Integer(16, 512)] = 84
    """Height and width of a scaled frame in pixels."""
    noop_max: Annotated[int, Integer(0, 1000)] = 30
    """Most idle raw frames, drawn at random, at the start of a game."""
    fire_reset: Flag = False
    """Press FIRE at the start of a game."""
    sticky_action_probability: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Probability that the emulator repeats the previous action (0.25 in Machado et al. 2018)."""
    full_action_space: Flag = False
    """Use all 18 Atari actions instead of the game's minimal set."""
    life_loss: Literal["Ignore", "EndsEpisode"] = "Ignore"
    """Effect of a lost life. EndsEpisode: it ends the return (discount 0), not the game."""


class EncoderParameters(ParameterSet):
    """A frozen network between the environment and the rest of the job."""

    file: Annotated[str, Text(1024, "a .safetensors file", r"^.+[.]safetensors$")]
    """The policy, from `rljob export --format safetensors`, for its convolutions and dense layers. On a cluster: a path in
    the pods."""


class EnvironmentParameters(ParameterSet):
    """How an environment is stepped and seen. A raw frame is one frame of an emulator; a step has atari.frameSkip of them. In
    other environments a step is a frame."""

    kwargs: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Keyword arguments for gymnasium.make or your factory."""
    register_functions: list[
        Annotated[str, Text(253, '"module:function" or "file.py:function"', f"^{FACTORY_PATTERN}$")]
    ] = Field(default_factory=list, max_length=32, alias="register")
    """Functions without arguments that register the id with Gymnasium."""
    backend: Literal["Auto", "Native", "Async", "Sync", "EnvPool"] = "Auto"
    """How an actor steps its environments. Native: the environment's own vector code. Async: a process each. Sync: one after
    another. Auto: the first of these that works. EnvPool: id and kwargs are EnvPool's."""
    actions: Annotated[
        list[Annotated[int, Integer(0, 1023)]] | Literal["Clipped", "Squashed"],
        ListOrWord(256, ("Clipped", "Squashed")),
    ] = "Clipped"
    """A list: allowed actions of the minimal set; empty means all. Continuous actions: how a number is brought into its
    bounds: Clipped, or Squashed by tanh."""

    action_masks: Literal["Auto", "Ignored"] = "Auto"
    """Use of masks. Auto: never take an action that info["action_mask"] forbids. Ignored: do not read masks."""

    leaves: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Kind of each leaf of the observation, by its path: image, vector, index, mask, critic or ignored; such as
    {camera.left: image}."""
    frame_stack: Annotated[int, Integer(1, 16)] = 4
    """Newest frames of each image in an observation. Only images are stacked."""
    encoder: EncoderParameters | None = None
    """Replace pixels by a vector: the float16 features of a trained, frozen network."""
    centre_input: Flag = False
    """Subtract the mean of the first stored frames before the network; for observations of one leaf."""
    input_scale: Annotated[float, Real(0, above=True)] | None = None
    """Factor on (centred) images and vectors. Unset: 1 over the largest whole number of a space, 1 for floats."""

    reward_clipping: Literal["Auto", "Enabled", "Disabled"] = "Auto"
    """Train on rewards clipped to [-1, 1]. Auto: for Atari games. Reported scores are never clipped."""
    max_episode_raw_frames: Annotated[int, Integer(1)] = 108_000
    """Raw frames after which a game is truncated (108,000 = 30 minutes)."""

    max_episode_steps: Annotated[int, Integer(1)] | None = None
    """Steps after which an episode is truncated; unset: the environment's own limit. If set, environments are stepped one by
    one, not by their vector class."""

    atari: AtariParameters = Field(default_factory=AtariParameters)
    """Parameters of Atari games."""

    @property
    def action_subset(self) -> tuple[int, ...]:
        """Numbers of the actions that are taken, empty for all."""
        return () if isinstance(self.actions, str) else tuple(self.actions)

    @property
    def squashes(self) -> bool:
        """Whether continuous actions come into their bounds by a tanh; else they are clipped."""
        return self.actions == "Squashed"

    @property
    def runs_foreign_code(self) -> bool:
        """Whether code of others than Gymnasium and ALE runs, whatever the id."""
        return bool(self.register_functions) or self.backend == "EnvPool"

    @property
    def most_raw_frames(self) -> int:
        """Raw frames after which a game of Atari is truncated."""
        return min(self.max_episode_raw_frames, (self.max_episode_steps or 1 << 62) * self.atari.frame_skip)


EnvironmentId = Annotated[
    str,
    Text(
        253,
        'a Gymnasium id ("ALE/Pong-v5", "CartPole-v1") or "module:factory"',
        r"^([^:\n]+[.]py:|[A-Za-z_][A-Za-z0-9_./-]*:)?[A-Za-z_][A-Za-z0-9_./-]*$",
    ),
]


class EvaluatorEnvironment(APIModel):
    """What differs in the environment of evaluations. All else is as in spec.environment; observations and actions must be the
    same."""

    id: EnvironmentId | None = None
    """Another environment of the same kind."""
    kwargs: Annotated[dict[str, Any], JSONObject()] | None = None
    """Keyword arguments; they replace those of spec.environment."""
    max_episode_steps: Annotated[int, Integer(1)] | None = None
    """Steps after which a game is truncated."""


class EnvironmentSource(EnvironmentParameters):
    """The environment that actors step and the evaluator scores, and how it is stepped and seen."""

    id: EnvironmentId
    """The environment. A factory, called with kwargs, returns a gymnasium.Env."""

    @property
    def parameters(self) -> EnvironmentParameters:
        """How it is stepped and seen, without which one it is; ``model_fields_set`` is what was written."""
        values = {name: getattr(self, name) for name in EnvironmentParameters.model_fields}
        return EnvironmentParameters.model_construct(_fields_set=self.model_fields_set - {"id"}, **values)


def judged_in(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The environment that the evaluator plays in: which one, and what changes the points of a game there. ``spec`` is that of a
    job in force, as its file has it."""
    own = {part: value for part, value in (value_at(spec, "evaluator.environment") or {}).items() if value is not None}
    played = {**(value_at(spec, "environment") or {}), **own}
    sticky = value_at(played, "atari.stickyActionProbability")
    parts = ("id", "kwargs", "maxEpisodeSteps", "maxEpisodeRawFrames")
    return {**{part: played.get(part) for part in parts}, "stickyActionProbability": sticky}

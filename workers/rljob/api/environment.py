"""``spec.environment``: which environment, and how its observations and rewards are prepared."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.parameters import ParameterSet
from rljob.api.types import FACTORY_PATTERN, APIModel, Flag, Integer, JSONObject, ListOrWord, Real, Text


class AtariParameters(ParameterSet):
    """How a game of the Arcade Learning Environment is played and seen. The defaults are those of Mnih et al. 2015."""

    frame_skip: Annotated[int, Integer(1, 32)] = 4
    """Raw frames that one action is held for."""
    max_pool: Flag = True
    """Take the brighter pixel of the last two raw frames (sprites that flicker)."""
    frame_size: Annotated[int, Integer(16, 512)] = 84
    """Height and width of a frame after scaling, in pixels."""
    noop_max: Annotated[int, Integer(0, 1000)] = 30
    """Largest random number of idle raw frames at the start of a game."""
    fire_reset: Flag = False
    """Press FIRE at the start of a game, where nothing moves before it."""
    sticky_action_probability: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Chance that the emulator repeats the previous action (Machado et al. 2018 use 0.25)."""
    full_action_space: Flag = False
    """All 18 Atari actions instead of the game's minimal set."""
    life_loss: Literal["Ignore", "EndsEpisode"] = "Ignore"
    """EndsEpisode: a lost life ends the return (discount 0) while the game goes on."""


class EncoderParameters(ParameterSet):
    """A frozen network between the environment and everything else of a job."""

    file: Annotated[str, Text(1024, "a .safetensors file", r"^.+[.]safetensors$")]
    """The policy that its trunk (convolutions and dense layers, without the heads) is taken from, as `rljob export --format
    safetensors` writes it; of a built-in algorithm and network. On a cluster a path in the roles' pods."""


class EnvironmentParameters(ParameterSet):
    """How an environment is stepped and seen. A raw frame is one frame of an emulator, of which a step has atari.frameSkip; of
    other environments a step is a frame."""

    kwargs: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Further keyword arguments of gymnasium.make or of the user's factory."""
    register_functions: list[
        Annotated[str, Text(253, '"module:function" or "file.py:function"', f"^{FACTORY_PATTERN}$")]
    ] = Field(default_factory=list, max_length=32, alias="register")
    """Functions that register the id with Gymnasium, for packages that do so only when they are asked: each is called without
    arguments, once in every process that makes the environment."""
    backend: Literal["Auto", "Native", "Async", "Sync", "EnvPool"] = "Auto"
    """How the environments of an actor are stepped. Native: the environment's own vector code. Async: one process an environment.
    Sync: one after the other. Auto: the first of these that works. EnvPool: the id is looked up in EnvPool, not in Gymnasium, and
    played, judged and drawn there, with its own preprocessing, whose settings are kwargs."""
    actions: Annotated[
        list[Annotated[int, Integer(0, 1023)]] | Literal["Clipped", "Squashed"],
        ListOrWord(256, ("Clipped", "Squashed")),
    ] = "Clipped"
    """A list: numbers of the actions the agent may take, out of the environment's minimal set; empty means all. A word: how the
    number that a policy draws for a continuous action comes into the bounds of its space. Clipped: at -1 and 1, which are
    the bounds. Squashed: by its tanh, between them."""

    action_masks: Literal["Auto", "Ignored"] = "Auto"
    """Auto: what info["action_mask"] forbids is never taken. Ignored: infos are not looked at."""

    leaves: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """What leaves of the observation are: image, vector, index, mask, critic or ignored, by their path, such as {camera.left:
    image}; an observation that is no Dict or Tuple is the leaf "observation"."""
    frame_stack: Annotated[int, Integer(1, 16)] = 4
    """Newest frames an observation holds of each image; nothing else is stacked."""
    encoder: EncoderParameters | None = None
    """Show the features that a trained and frozen network has of the picture, float16, in the place of its pixels: computed
    once, in the actor, so that they are what travels, is stored and is learned from. The job's own network then sees a vector,
    and centreInput and inputScale are about that one; how the file's network sees pixels stands in the file."""
    centre_input: Flag = False
    """Subtract the mean frame, measured from the first stored frames, before the network; of one leaf."""
    input_scale: Annotated[float, Real(0, above=True)] | None = None
    """Factor on the (centred) images and vectors; unless given, 1 over the largest whole number of a space, 1 for floats."""

    reward_clipping: Literal["Auto", "Enabled", "Disabled"] = "Auto"
    """Train on rewards clipped to [-1, 1]; for whole points that is their sign. Auto: Enabled for Atari games, Disabled
    for everything else. Scores shown to people are never clipped."""
    max_episode_raw_frames: Annotated[int, Integer(1)] = 108_000
    """Raw frames after which a game is truncated (108,000 = 30 minutes)."""

    max_episode_steps: Annotated[int, Integer(1)] | None = None
    """Steps after which an episode is truncated, where it has not ended before; unset: as the environment itself does. With it
    environments are stepped one by one, as none of a vector class ends its episodes by it."""

    atari: AtariParameters = Field(default_factory=AtariParameters)
    """Parameters of Atari games alone."""

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
    """What is different in the environment that is judged in. What is not given is as in spec.environment, whose observations and
    actions it has to have."""

    id: EnvironmentId | None = None
    """Another Gymnasium id or factory."""
    kwargs: Annotated[dict[str, Any], JSONObject()] | None = None
    """Its keyword arguments, in the place of all that spec.environment has."""
    max_episode_steps: Annotated[int, Integer(1)] | None = None
    """Steps after which a game is truncated, say where the best action of a policy may lead nowhere for ever."""


class EnvironmentSource(EnvironmentParameters):
    """The environment that actors step and the evaluator scores, and how it is stepped and seen."""

    id: EnvironmentId
    """Unless a preset names it: a Gymnasium id, or ``module:factory`` or ``file.py:factory``, where factory(**kwargs) returns a
    gymnasium.Env, as such a class itself does."""

    @property
    def parameters(self) -> EnvironmentParameters:
        """How it is stepped and seen, without which one it is; ``model_fields_set`` is what was written."""
        values = {name: getattr(self, name) for name in EnvironmentParameters.model_fields}
        return EnvironmentParameters.model_construct(_fields_set=self.model_fields_set - {"id"}, **values)


def judged_in(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The environment that the evaluator plays in: which one, and what changes the points of a game there. ``spec`` is that of a
    job in force, as its file has it."""
    of_evaluator = _section(_section(spec, "evaluator"), "environment")
    own = {part: value for part, value in of_evaluator.items() if value is not None}
    played = {**_section(spec, "environment"), **own}
    sticky = _section(played, "atari").get("stickyActionProbability")
    parts = ("id", "kwargs", "maxEpisodeSteps", "maxEpisodeRawFrames")
    return {**{part: played.get(part) for part in parts}, "stickyActionProbability": sticky}


def _section(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return found if isinstance(found, Mapping) else {}

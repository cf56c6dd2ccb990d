"""From the text in a manifest to the thing that it names: an Atari game, a Gymnasium id, or a user's own factory."""

import copy
import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import ale_py
import gymnasium
from ale_py import roms

from rljob.api import EnvironmentParameters
from rljob.envs.base import EnvironmentProblem, UnknownEnvironment
from rljob.envs.envpool_vector import is_game_of_atari, pool_factory
from rljob.loading import PLUGIN_FAILURES, PluginProblem, by_a_user, contained, imported, loaded, short, told

gymnasium.register_envs(ale_py)
ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # or every process prints a banner

_ATARI: Final = "ale_py.env:AtariEnv"

# Arguments of the Atari emulator that environment parameters already decide, and the parameter that does.
_DECIDED_ELSEWHERE = {
    "frameskip": "atari.frameSkip",
    "repeat_action_probability": "atari.stickyActionProbability",
    "full_action_space": "atari.fullActionSpace",
    "max_num_frames_per_episode": "maxEpisodeRawFrames",
    "obs_type": "atari.frameSize (observations are always grayscale)",
    "continuous": "actions (only discrete actions are supported)",
}

# What environments of Gymnasium's own may lack, as its messages begin, and the extra of ours that brings it.
_EXTRAS: Final = {"MuJoCo": "mujoco", "Box2D": "box2d", "pygame": "video"}


@dataclass(frozen=True, slots=True)
class AtariGame:
    """A game of the Arcade Learning Environment; ``rom`` in ALE's spelling ("pong"). ``kwargs``: mode, difficulty."""

    id: str
    rom: str
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RegisteredEnvironment:
    """Any other id that Gymnasium knows. ``made_as``: what Gymnasium takes for it in every process, with the module that
    registers it; ``entry_point``: what makes it; ``has_vector_class``: whether it names a vectorised implementation."""

    id: str
    kwargs: dict[str, Any]
    has_vector_class: bool
    made_as: str
    entry_point: Any


@dataclass(frozen=True, slots=True)
class UserFactory:
    """A user's ``module:factory``. It takes ``num_envs`` if ``vectorised`` and must if ``vector_only``; it takes
    ``render_mode`` if ``draws``, ``copy_number`` if ``numbered``, and ``device`` beside ``num_envs`` if its vectors are
    ``on_device``."""

    id: str
    make: Callable[..., Any]
    kwargs: dict[str, Any]
    vectorised: bool
    vector_only: bool
    draws: bool
    on_device: bool = False
    numbered: bool = False


_called: set[str] = set()
"""Functions that were asked to register their environments in this process."""

Target = AtariGame | RegisteredEnvironment | UserFactory


def clips_rewards(environment_id: str, parameters: EnvironmentParameters) -> bool:
    """Whether training sees clipped rewards: as ``rewardClipping`` says, and with Auto in an Atari game.
    Imports no code of a user."""
    if parameters.reward_clipping == "Auto" and parameters.backend == "EnvPool":
        return is_game_of_atari(environment_id)
    if parameters.reward_clipping == "Auto":
        registered = gymnasium.registry.get(environment_id.rpartition(":")[2])
        return registered is not None and registered.entry_point == _ATARI
    return parameters.reward_clipping == "Enabled"


def named_authors(target: Target) -> None:
    """Have errors in this process name the lines of the author of ``target``."""
    if not isinstance(target, AtariGame):
        entry = target.make if isinstance(target, UserFactory) else target.entry_point
        by_a_user(entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", None) or "")


def register(parameters: EnvironmentParameters) -> None:
    """Call the functions of ``environment.register`` that were not called in this process yet. Raises EnvironmentProblem."""
    for function in parameters.register_functions:
        if function in _called:
            continue
        try:
            loaded(function)()
        except PluginProblem as problem:
            raise EnvironmentProblem(f"environment.register: {short(function)!r}: {problem}") from problem
        except PLUGIN_FAILURES as error:
            raise EnvironmentProblem(f"environment.register: {short(function)!r} failed: {told(error)}") from error
        _called.add(function)


@contained(making=True)
def resolve(environment_id: str, parameters: EnvironmentParameters) -> Target:
    """Find what ``environment_id`` names, in EnvPool where that is the backend. Raises EnvironmentProblem with the nearest names
    if nothing has that name, and where a function of ``environment.register`` fails.

    "module:name" (or "file.py:name") is a factory, a function or a class, when ``name`` is a plain identifier that the module
    has. Else it is an id, as Gymnasium has it: the module, or file, is imported, and registers it ("module:Name-v0").
    """
    register(parameters)
    kwargs = copy.deepcopy(parameters.kwargs)  # a factory may change what it is given
    place, colon, name = environment_id.rpartition(":")
    if parameters.backend == "EnvPool":
        make = pool_factory(environment_id, kwargs)
        return UserFactory(environment_id, make, kwargs, vectorised=True, vector_only=False, draws=True)
    try:
        module = imported(place) if colon else None
        named = name.isidentifier() and module and (hasattr(module, name) or name not in gymnasium.registry)
        factory = loaded(environment_id) if named else None
    except PluginProblem as problem:
        raise EnvironmentProblem(f"environment {short(environment_id)!r}: {problem}") from problem
    if factory is not None:
        return _factory(environment_id, factory, kwargs)
    made_as = f"{module.__name__}:{name}" if module else name
    try:
        spec = gymnasium.spec(name)
    except gymnasium.error.Error as error:
        raise UnknownEnvironment(_unknown(environment_id, error)) from error
    if spec.entry_point == _ATARI:
        if taken := next((key for key in kwargs if key in _DECIDED_ELSEWHERE), None):
            raise EnvironmentProblem(
                f"environment {short(environment_id)!r}: kwargs may not set {taken!r}; "
                f"set the parameter {_DECIDED_ELSEWHERE[taken]}"
            )
        return AtariGame(environment_id, _checked_rom(environment_id, str(spec.kwargs["game"])), kwargs)
    has_vector_class = spec.vector_entry_point is not None
    found = RegisteredEnvironment(environment_id, kwargs, has_vector_class, made_as, spec.entry_point)
    named_authors(found)
    return found


def what_it_lacks(error: BaseException) -> str:
    """An error of making or drawing an environment, in one line; of a package that Gymnasium's own need with our extra for it."""
    lacks = str(error).partition(" ")[0] if isinstance(error, gymnasium.error.DependencyNotInstalled) else ""
    if lacks not in _EXTRAS:
        return told(error)
    return f"it needs {lacks}, which this install lacks: pip install 'rljob[{_EXTRAS[lacks]}]'"


def _unknown(environment_id: str, error: Exception) -> str:
    """One line with the nearest registered names: the whole id first, then its last part, whatever the version."""
    place, colon, wanted = environment_id.rpartition(":")
    known = list(gymnasium.registry)
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.7)
    if not near:
        bare = {re.sub(r"-v\d+$", "", name.rpartition("/")[2]).lower(): name for name in known}
        last = re.sub(r"-v\d+$", "", wanted.rpartition("/")[2]).lower()
        near = [bare[name] for name in difflib.get_close_matches(last, bare, n=3, cutoff=0.6)]
    advice = "; list what there is with gymnasium.pprint_registry()"
    if environment_id.endswith(".py"):
        advice = f"; a file is named with its function, {environment_id}:make"
    elif near:
        advice = f"; did you mean {' or '.join(short(f'{place}{colon}{name}') for name in near)}?"
    if colon:
        advice += f" (where a function of {short(place)} registers it, name that in environment.register)"
    elif not environment_id.endswith(".py"):
        advice += (
            f" (one that a package registers is named with it, package:{wanted}, or by its function in environment.register; one "
            f"that a notebook or a program registers itself is not known to its run: write that into a file, env.py:{wanted})"
        )
    reason = str(error).splitlines()[0].partition(" Did you mean")[0].rstrip(".")
    return f"environment {short(environment_id)!r} is not known: {reason}{advice}"


def _checked_rom(environment_id: str, rom: str) -> str:
    try:
        path = roms.get_rom_path(rom)
    except OSError as error:
        raise EnvironmentProblem(
            f"environment {short(environment_id)!r}: the ROM {rom!r} cannot be read ({error.args[-1]}); reinstall it with "
            "`pip install --force-reinstall ale-py`, which brings the ROMs, and unset ALE_ROMS_DIR or point it at a "
            "folder with that file"
        ) from error
    if path is None:
        raise EnvironmentProblem(
            f"environment {short(environment_id)!r}: this version of ale-py has no ROM {rom!r}; `pip install --upgrade ale-py`"
        )
    return rom


def _factory(environment_id: str, make: Callable[..., Any], kwargs: dict[str, Any]) -> UserFactory:
    try:
        takes = dict(inspect.signature(make).parameters)
    except (TypeError, ValueError):  # a callable of C has no signature
        takes = {}
    if takes:
        _check_kwargs(environment_id, takes, kwargs)
    num_envs = takes.get("num_envs")
    vector_only = num_envs is not None and num_envs.default is inspect.Parameter.empty
    on_device = num_envs is not None and "device" in takes
    numbered = "copy_number" in takes and "copy_number" not in kwargs
    draws = "render_mode" in takes
    return UserFactory(environment_id, make, kwargs, num_envs is not None, vector_only, draws, on_device, numbered)


def _check_kwargs(environment_id: str, takes: Mapping[str, inspect.Parameter], kwargs: Mapping[str, Any]) -> None:
    """Raise EnvironmentProblem where the factory's arguments are others than the manifest's ``kwargs``."""
    kinds = inspect.Parameter
    named = [name for name, each in takes.items() if each.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    problem = f"environment {short(environment_id)!r}: kwargs"
    unknown = next((name for name in kwargs if name not in named), None)
    if unknown is not None and not any(each.kind is kinds.VAR_KEYWORD for each in takes.values()):
        has = f"it has {', '.join(named)}" if named else "it has none"
        near = difflib.get_close_matches(unknown, named, n=1)
        advice = f"did you mean {near[0]!r}?" if near else has
        raise EnvironmentProblem(f"{problem}: the factory has no argument {unknown!r}; {advice}")
    missing = [
        name
        for name in named
        if takes[name].default is kinds.empty and name not in (*kwargs, "num_envs", "copy_number")
    ]
    if missing:
        raise EnvironmentProblem(f"{problem}: the factory needs {', '.join(missing)}")

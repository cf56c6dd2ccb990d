"""Which spaces there are, and what their leaves are taken for: the roles that a manifest gives them, or those that fit them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rljob.envs.base import EnvironmentProblem
from rljob.envs.spec import ActionLeaf, Keys, Leaf, LeafRole, path_of
from rljob.loading import short
from rljob.observation import MAX_PICTURES, PICTURES

IGNORED: Final = "ignored"
ROLES: Final = ("image", "vector", "index", "mask", "critic", IGNORED)
"""What a manifest may call a leaf; one that is ignored goes nowhere, whatever its space."""
MASK: Final = "action_mask"
"""The key under which environments give the actions that are allowed, in an observation or in an info."""
SMALLEST_IMAGE_SIDE: Final = 16
"""Bytes of fewer rows or columns are taken for a grid of symbols, unless the manifest says that they are an image."""
_MOST_ONE_HOT: Final = 65_536
_LARGEST_SCALED: Final = 65_535
_FAR: Final = 1e6
"""A bound beyond this is there because a Box asks for one, and not because the action has it."""


class _Unsupported(ValueError):
    """A leaf that can't be taken; the text says why."""


def _expect(right: object, why: str) -> None:
    if not right:
        raise _Unsupported(why)


def observation_leaves(
    environment_id: str, space: gymnasium.Space[Any], roles: Mapping[str, Any], choices: int, *, masked_by_info: bool
) -> tuple[Leaf, ...]:
    """The leaves of an observation space, in its order, the mask of infos behind them.

    ``roles``: those that the manifest gives, by the path of a leaf. ``choices``: how many values a mask is of.
    Raises EnvironmentProblem, which names the leaf and the reason, for what is not supported.
    """
    problem = f"environment {short(environment_id)!r}: "
    found = list(_walk(space, (), problem + "observation "))
    paths = [path_of(keys, "observation") for keys, _ in found]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise EnvironmentProblem(
            f"{problem}observation has two leaves called {short(twice)!r}; keys with dots in them do that"
        )
    if unknown := next((path for path in roles if path not in paths), None):
        raise EnvironmentProblem(
            f"{problem}environment.leaves names {short(unknown)!r}; its observation has {', '.join(paths)}"
        )
    leaves = []
    for keys, leaf_space in found:
        path = path_of(keys, "observation")
        if roles.get(path) == IGNORED:
            continue
        try:
            leaves.append(_leaf(keys, leaf_space, roles.get(path), choices))
        except _Unsupported as why:
            raise EnvironmentProblem(f"{problem}observation leaf {short(path)!r} {why}") from None
    if not leaves:
        raise EnvironmentProblem(f"{problem}environment.leaves ignores all that it shows")
    if masked_by_info and not any(leaf.role == "mask" for leaf in leaves):
        leaves.append(Leaf(("info", MASK), "mask", (choices,), "int8", column="octets"))
    return _laid_out(leaves, problem)


def action_leaves(environment_id: str, space: gymnasium.Space[Any]) -> tuple[ActionLeaf, ...]:
    """The leaves of an action space, in its order. Raises EnvironmentProblem as ``observation_leaves`` does."""
    problem = f"environment {short(environment_id)!r}: action "
    leaves = []
    for keys, leaf_space in _walk(space, (), problem):
        try:
            leaves.append(_action(keys, leaf_space))
        except _Unsupported as why:
            raise EnvironmentProblem(f"{problem}leaf {short(path_of(keys, 'action'))!r} {why}") from None
    return tuple(leaves)


def checked_subset(environment_id: str, actions: Sequence[int], leaves: Sequence[ActionLeaf]) -> Sequence[int]:
    """``actions`` if they are distinct actions of an environment with one Discrete, else EnvironmentProblem."""
    problem = f"environment {short(environment_id)!r}: actions"
    sizes = [size for leaf in leaves for size in leaf.sizes]
    if len(sizes) != 1 or any(leaf.low for leaf in leaves):
        kinds = ", ".join(str(leaf) for leaf in leaves)
        raise EnvironmentProblem(f"{problem} can name some of one Discrete; this environment has {kinds}")
    if outside := [a for a in actions if not 0 <= a < sizes[0]]:
        raise EnvironmentProblem(f"{problem} {outside} do not exist; it has {sizes[0]}, numbered from 0")
    if len(set(actions)) != len(actions):
        raise EnvironmentProblem(f"{problem} {list(actions)} repeat themselves; name each once")
    return actions


def check_squashed(environment_id: str, leaves: Sequence[ActionLeaf]) -> None:
    """Raise EnvironmentProblem where ``actions: Squashed`` says nothing, or there is no bound to squash to."""
    problem = f"environment {short(environment_id)!r}: "
    numbers = [leaf for leaf in leaves if leaf.low]
    if not numbers:
        kinds = ", ".join(str(leaf) for leaf in leaves)
        raise EnvironmentProblem(
            f"{problem}actions: Squashed, without which SAC can't learn, is about continuous actions; this "
            f"environment has {kinds}"
        )
    for leaf in numbers:
        if odd := [bound for bound in (*leaf.low, *leaf.high) if not np.isfinite(bound)]:
            raise EnvironmentProblem(
                f"{problem}action leaf {short(leaf.path)!r} has the bound {odd[0]:g}, to which a tanh can't be scaled; "
                "give the environment finite ones (gymnasium.wrappers.TransformAction), or take IMPALA or PPO, where "
                "actions: Clipped takes a policy's number as it is there"
            )


def bounds_in_words(leaves: Sequence[ActionLeaf], *, squashed: bool) -> Iterator[str]:
    """What becomes of a policy's numbers in the bounds of each continuous leaf, a line a leaf."""
    for leaf in leaves:
        if not leaf.low:
            continue
        bounds = [*leaf.low, *leaf.high]
        where = f"action leaf {leaf.path}, {leaf.bounds}" if leaf.keys else f"actions {leaf.bounds}"
        if not np.isfinite(bounds).all():
            yield (
                f"{where}: without two finite bounds a policy's number is taken as it is, or clipped at the one there is "
                "(actions: Clipped); actions: Squashed needs both"
            )
            continue
        clipped, squash = "clipped at -1 and 1", "by its tanh"
        now, other = (squash, clipped) if squashed else (clipped, squash)
        word, other_word = ("Squashed", "Clipped") if squashed else ("Clipped", "Squashed")
        far = max(map(abs, bounds))
        warning = f"; 0.01 of a policy is up to {0.01 * far:g} there, far from what values do" if far > _FAR else ""
        yield (
            f"{where}: a policy's number is scaled to them, {now} (actions: {word}); actions: {other_word} scales it {other}"
            f"{warning}"
        )


def checked_controls(controls: NDArray[Any] | None, num_envs: int, count: int) -> None:
    """Raise ValueError unless ``controls`` are ``count`` finite numbers for each environment, None without any."""
    if controls is None and not count:
        return
    if controls is None or controls.shape != (num_envs, count) or controls.dtype.kind != "f":
        came = None if controls is None else f"{controls.dtype} of shape {controls.shape}"
        raise ValueError(f"continuous actions must be floats of shape {(num_envs, count)}, got {came}")
    if not np.isfinite(controls).all():
        raise ValueError(f"continuous actions must be finite, got {controls[~np.isfinite(controls)][0]}")


def checked_actions(actions: NDArray[Any], num_envs: int, sizes: Sequence[int]) -> NDArray[Any]:
    """``actions`` if they are integers in their ranges, [N] of a single choice and [N, choices] of others, else ValueError.

    Not a courtesy: ALE's worker thread throws on a bad index, and the process then waits for ever.
    """
    shape = (num_envs,) if len(sizes) == 1 else (num_envs, len(sizes))
    if actions.shape != shape or actions.dtype.kind not in "iu":
        raise ValueError(f"actions must be integers of shape {shape}, got {actions.dtype} of shape {actions.shape}")
    if not sizes:
        return actions
    if actions.min() < 0 or (actions >= (sizes[0] if len(sizes) == 1 else np.asarray(sizes))).any():
        limits = f"[0, {sizes[0]})" if len(set(sizes)) == 1 else f"[0, n) with n {list(sizes)}"
        raise ValueError(f"actions must lie in {limits}, got {actions.min()} to {actions.max()}")
    return actions


def _walk(space: gymnasium.Space[Any], keys: Keys, problem: str) -> Iterator[tuple[Keys, gymnasium.Space[Any]]]:
    """The leaves of a space with the keys that lead to them."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, one in inner:
            if isinstance(space, spaces.Dict) and not isinstance(key, str):
                raise EnvironmentProblem(f"{problem}has the key {key!r}; keys of a Dict have to be texts")
            yield from _walk(one, (*keys, key), problem)
        if not keys and not space.spaces:
            raise EnvironmentProblem(f"{problem}space is an empty {type(space).__name__}")
    else:
        yield keys, space


def _leaf(keys: Keys, space: gymnasium.Space[Any], role: object, choices: int) -> Leaf:
    _expect(role in (None, *ROLES), f"can't have the role {role!r}; environment.leaves takes {', '.join(ROLES)}")
    sizes, start = _choices(space)
    learned = sizes or isinstance(space, spaces.Box | spaces.MultiBinary)
    _expect(learned, f"is a {type(space).__name__}, which can't be learned from; {_ADVICE}")
    shape, dtype = tuple(space.shape or ()), str(np.dtype(space.dtype))
    _expect(prod(shape), f"is empty: its shape is {shape}")
    _expect(np.dtype(dtype).kind in "biuf", f"has numbers of the type {dtype}, which are neither real nor whole")
    if role is None:
        named = keys[-1:] == (MASK,) and prod(shape) == choices
        role = "mask" if named else "index" if sizes else "image" if _is_image(space) else "vector"
    if role == "index" and not sizes:
        sizes, start = _symbols(space)
    if role in ("vector", "mask", "image"):
        sizes, start = (), ()
    allowed = role != "mask" or prod(shape) == choices
    _expect(allowed, f"is a mask of {prod(shape)}, but there are {choices} actions to allow")
    flat_or_coloured = role != "image" or len(shape) in (2, 3)
    _expect(flat_or_coloured, f"can't be an image: its shape is {shape}, an image has two or three dimensions")
    few = sum(sizes) <= _MOST_ONE_HOT
    _expect(few, f"has {sum(sizes):,} values, too many to be one-hot (at most {_MOST_ONE_HOT:,}); {_ADVICE}")
    of_bytes = dtype in ("bool", "uint8") or role == "mask" or isinstance(space, spaces.MultiBinary)
    column = "index" if sizes else "octets" if of_bytes else "vector"
    return Leaf(keys, cast(LeafRole, role), shape, dtype, _scale(space), sizes, start, column)


_ADVICE: Final = (
    "leave it out (role ignored in environment.leaves), or turn it into a Box in a module:factory of your own"
)


def _choices(space: gymnasium.Space[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many values each element of a Discrete or MultiDiscrete has, and its first one."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),), (int(space.start),)
    if isinstance(space, spaces.MultiDiscrete):
        starts = getattr(space, "start", np.zeros_like(space.nvec))
        return tuple(space.nvec.ravel().tolist()), tuple(starts.ravel().tolist())
    return (), ()


def _symbols(space: gymnasium.Space[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """As ``_choices``, of a space of whole numbers with bounds, which a manifest calls an index."""
    if isinstance(space, spaces.MultiBinary):
        return (2,) * prod(space.shape), (0,) * prod(space.shape)
    assert isinstance(space, spaces.Box)
    whole = space.dtype is not None and space.dtype.kind in "biu"
    _expect(whole, f"can't be an index: its numbers are {space.dtype}, and an index has whole ones")
    pairs = [(int(low), int(high)) for low, high in zip(space.low.ravel(), space.high.ravel(), strict=True)]
    return tuple(high - low + 1 for low, high in pairs), tuple(low for low, _ in pairs)


def _is_image(space: gymnasium.Space[Any]) -> bool:
    """Bytes from 0 to 255, or floats from 0 to 1 or to 255, of two or three dimensions and not the size of a board game."""
    if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3) or space.dtype is None:
        return False
    sides = sorted(space.shape)[-2:]
    bounds = float(space.low.min()), float(space.high.max())
    pixels = bounds == (0, 255) if space.dtype == np.uint8 else space.dtype.kind == "f" and bounds in ((0, 1), (0, 255))
    return pixels and min(sides) >= SMALLEST_IMAGE_SIDE


def _scale(space: gymnasium.Space[Any]) -> float:
    """One over the largest whole number that there can be; 1 of floats, and where that is anything."""
    if not isinstance(space, spaces.Box) or space.dtype is None or space.dtype.kind not in "iu":
        return 1.0
    largest = max(abs(int(space.low.min())), abs(int(space.high.max())))
    return 1.0 / largest if 0 < largest <= _LARGEST_SCALED else 1.0


def _action(keys: Keys, space: gymnasium.Space[Any]) -> ActionLeaf:
    kind, shape = type(space).__name__, tuple(space.shape or ())
    sizes, start = _choices(space)
    if isinstance(space, spaces.MultiBinary):
        sizes, start = (2,) * prod(shape), (0,) * prod(shape)
    few = sum(sizes) <= _MOST_ONE_HOT
    _expect(few, f"has {sum(sizes):,} values, too many for a network's outputs (at most {_MOST_ONE_HOT:,})")
    if sizes:
        return ActionLeaf(keys, kind, shape, str(np.dtype(space.dtype)), sizes, start)
    if not isinstance(space, spaces.Box) or space.dtype is None:
        raise _Unsupported(
            f"is a {kind}; actions can be Discrete, MultiDiscrete, MultiBinary, Box, and Dict or Tuple of these"
        )
    _expect(space.dtype.kind == "f", f"is a Box of {space.dtype}; whole numbers to choose from are a MultiDiscrete")
    _expect(prod(shape), f"is empty: its shape is {shape}")
    low, high = (tuple(bound.astype(np.float64).ravel().tolist()) for bound in (space.low, space.high))
    return ActionLeaf(keys, kind, shape, str(space.dtype), (), (), low, high)


def _laid_out(leaves: Sequence[Leaf], problem: str) -> tuple[Leaf, ...]:
    """``leaves`` with their places in the columns of experience."""
    pictures = iter(PICTURES)
    used: dict[str, int] = {}
    placed = []
    for leaf in leaves:
        if leaf.role == "image":
            column = next(pictures, None)
            if column is None:
                raise EnvironmentProblem(
                    f"{problem}observation leaf {short(leaf.path)!r} is image number {MAX_PICTURES + 1}; {MAX_PICTURES} are "
                    "supported, and environment.leaves can make it a vector"
                )
            placed.append(replace(leaf, column=column))
        else:
            offset = used.get(leaf.column, 0)
            used[leaf.column] = offset + leaf.size
            placed.append(replace(leaf, offset=offset))
    return tuple(placed)

"""Between what an environment takes and gives, in its own spaces, and what is recorded and learned from: both edges, once."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rljob.api import EnvironmentParameters
from rljob.envs.spaces import MASK
from rljob.envs.spec import ActionLeaf, EnvironmentSpec, Keys, Leaf
from rljob.loading import short, shown
from rljob.observation import Array, each, of_columns

log = logging.getLogger(__name__)


class Encoding:
    """The encoding of environments of ``spec``. ``parameters`` say which of its own actions ours are, and how continuous ones
    come into their bounds.

    An observation is a copy, for authors write into one buffer; it has no stack yet. ``rows`` of a vector environment: how many
    observations or actions each array holds, its first extent; None of one environment.
    """

    def __init__(self, spec: EnvironmentSpec, parameters: EnvironmentParameters) -> None:
        self._spec, self._columns = spec, spec.columns
        self._subset = np.asarray(parameters.action_subset, np.int64) if parameters.action_subset else None
        self._bounded = {leaf.keys: _Bounded(leaf, parameters.squashes) for leaf in spec.action if leaf.low}
        self._observation = [(leaf, np.asarray(leaf.sizes), np.asarray(leaf.start)) for leaf in spec.observation]
        (first, *more), (column, *_) = spec.observation, self._columns
        # Most environments give one array, which needs no rows to be put together.
        self._alone = (first, column) if not more and not first.keys and not first.sizes else None
        # And many one number of a few, or take one: a table of cells, a button.
        self._cell = (first, column) if not more and not first.keys and len(first.sizes) == 1 else None
        button = spec.action[0]
        self._button = button if len(spec.action) == 1 and button.kind == "Discrete" and not button.keys else None
        self.empty_masks = 0
        """Masks since it was set to 0 that allowed nothing of a choice."""
        self._warned = False

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """A space of what ``observation`` gives, without any meaning but shapes and types."""
        boxes = [_box(column.shape, column.dtype) for column in self._columns]
        found = of_columns(self._columns, boxes)
        return spaces.Dict(found) if isinstance(found, dict) else found

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of what ``action`` takes."""
        sizes, controls = self._spec.action_sizes, self._spec.controls
        choices = spaces.Discrete(sizes[0]) if len(sizes) == 1 else spaces.MultiDiscrete(list(sizes)) if sizes else None
        if not controls:
            assert choices is not None
            return choices
        box = _box((controls,), np.dtype(np.float32))
        return box if choices is None else spaces.Dict({"choices": choices, "controls": box})

    # ---------------------------------------------------------------------------------------------------------- observed

    def observation(self, given: Any, info: Any, rows: int | None = None) -> Any:
        """What an environment gave, as one array or a dict of columns; ``info`` of one environment is read for a mask.

        Raises ValueError, which names the leaf, what was expected and what came.
        """
        lead = () if rows is None else (rows,)
        if self._alone is not None:
            leaf, column = self._alone
            return np.array(_checked(given, leaf, lead), column.dtype).reshape(*lead, *column.shape)
        if self._cell is not None and rows is None and isinstance(given, int | np.integer):
            leaf, column = self._cell
            if 0 <= (number := int(given) - leaf.start[0]) < leaf.sizes[0]:
                return np.full(column.shape, number, column.dtype)
        arrays = {column.name: np.zeros((*lead, *column.shape), column.dtype) for column in self._columns}
        for leaf, sizes, start in self._observation:
            into = arrays[leaf.column]
            if leaf.role == "mask":
                into[..., leaf.span] = self._mask(leaf, given, info) if rows is None else self._masks(leaf, given, rows)
                continue
            value = _checked(at(given, leaf), leaf, lead)
            if leaf.role == "image":
                into[...] = value
                continue
            row = value.reshape(*lead, leaf.size)
            if leaf.sizes:
                row = row - start
                if (row < 0).any() or (row >= sizes).any():
                    fine = (row >= 0) & (row < sizes)
                    odd = first_odd(value, fine.reshape(value.shape))
                    raise ValueError(f"expected {leaf.path} within its space ({leaf}), got {odd}")
            into[..., leaf.span] = row
        return of_columns(self._columns, list(arrays.values()))

    def _masks(self, leaf: Leaf, given: Any, rows: int) -> list[Array]:
        return [self._mask(replace(leaf, keys=()), _row(at(given, leaf), row), None) for row in range(rows)]

    def _mask(self, leaf: Leaf, given: Any, info: Any) -> Array:
        """Which actions are allowed, bool; all where none is, and where an info says nothing."""
        if leaf.keys[:1] == ("info",) and self._spec.masked_by_info:
            given = info.get(MASK) if isinstance(info, Mapping) else None
            if given is None:
                return np.ones(leaf.size, np.bool_)
        else:
            given = at(given, leaf)
        mask = _allowed(given, self._spec.action)
        if self._subset is not None and len(mask) > self._subset.max():
            mask = mask[self._subset]
        if mask.shape != (leaf.size,):
            raise ValueError(f"expected {leaf.path} of {leaf.size} actions, got {shown(given)}")
        begin = 0
        for size in self._spec.action_sizes:
            if not mask[begin : begin + size].any():
                if not self._warned:
                    self._warned = True
                    log.warning(
                        "environment %r: its mask allows no action; all are allowed then, and such masks are counted",
                        short(self._spec.id),
                    )
                self.empty_masks += 1
                mask[begin : begin + size] = True
            begin += size
        return np.asarray(mask)

    # ------------------------------------------------------------------------------------------------------------- taken

    def action(self, taken: Any, rows: int | None = None) -> Any:
        """What the environment takes for ``taken``, an element of ``action_space`` or ``rows`` of them: values of its own space's
        kinds, within its bounds. Raises ValueError for continuous numbers that are not finite."""
        if self._button is not None and rows is None:
            return int(taken if self._subset is None else self._subset[taken]) + self._button.start[0]
        if isinstance(taken, Mapping):
            choices, controls = taken["choices"], taken["controls"]
        else:
            choices, controls = (taken, ()) if self._spec.action_sizes else ((), taken)
        choices, controls = np.asarray(choices), np.asarray(controls, np.float64)
        if not np.isfinite(controls).all():
            raise ValueError(
                f"an action of finite numbers was expected, it has {first_odd(controls, np.isfinite(controls))}"
            )
        if self._subset is not None:
            choices = self._subset[choices]
        lead = () if rows is None else (rows,)
        if len(self._spec.action_sizes) == 1:
            choices = choices[..., None]
        found: dict[Keys, Any] = {}
        for leaf in self._spec.action:
            if leaf.low:
                count = len(leaf.low)
                found[leaf.keys] = self._bounded[leaf.keys](controls[..., :count]).reshape((*lead, *leaf.shape))
                controls = controls[..., count:]
            else:
                count = len(leaf.sizes)
                found[leaf.keys] = _native(leaf, choices[..., :count], lead)
                choices = choices[..., count:]
        return _nested(found)


class _Bounded:
    """From a policy's numbers, float64 [..., n], to those of a Box.

    Where both bounds of a number are finite they are -1 and 1 for a policy, whose number is clipped there, or replaced by its
    tanh; where not, the number is taken as it is, clipped at the bound that there is.
    """

    def __init__(self, leaf: ActionLeaf, squashes: bool) -> None:
        low, high = np.array(leaf.low), np.array(leaf.high)
        self._dtype, self._squashes = np.dtype(leaf.dtype), squashes
        scaled = np.isfinite(low) & np.isfinite(high)
        self._scaled = None if scaled.all() else scaled
        self._low, self._high = np.where(scaled, low, 0.0), np.where(scaled, high, 0.0)
        largest = float(np.finfo(self._dtype).max)
        self._least, self._most = np.maximum(low, -largest), np.minimum(high, largest)

    def __call__(self, numbers: Array) -> Array:
        share = 0.5 + 0.5 * (np.tanh(numbers) if self._squashes else np.minimum(np.maximum(numbers, -1.0), 1.0))
        # Not low + share * (high - low), whose difference may be beyond the largest number.
        taken = (1.0 - share) * self._low + share * self._high
        if self._scaled is not None:
            taken = np.where(self._scaled, taken, numbers)
        # Rounded within the bounds, and so still within them in the type of the space.
        found: Array = np.minimum(np.maximum(taken, self._least), self._most).astype(self._dtype)
        return found


def any_action(spec: EnvironmentSpec, observation: Any, generator: np.random.Generator) -> Any:
    """An action at random in an environment that shows ``observation`` [S, *F*], for ``Encoding.action``: one that is allowed."""
    return each(lambda of: of[0], spec.choices(each(lambda of: of[None], observation)).anything(1, generator))


def _box(shape: tuple[int, ...], dtype: np.dtype[Any]) -> spaces.Box:
    low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
    if dtype == np.int32:
        low, high = 0, int(np.iinfo(np.int32).max)
    return spaces.Box(low, high, shape, dtype.type)


def at(given: Any, leaf: Leaf | ActionLeaf) -> Any:
    """The part of an observation or of an action that is ``leaf``'s. Raises ValueError where there is none."""
    for key in leaf.keys:
        try:
            given = given[key]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"expected {leaf.path} in what the environment gives, got {shown(given)}") from None
    return given


def _row(given: Any, row: int) -> Any:
    """Row ``row`` of every array in tuples and dicts."""
    if isinstance(given, Mapping):
        return {key: _row(part, row) for key, part in given.items()}
    return tuple(_row(part, row) for part in given) if isinstance(given, tuple) else given[row]


def _checked(given: Any, leaf: Leaf, lead: tuple[int, ...]) -> Array:
    """``given`` as an array. Raises ValueError unless it has the leaf's shape behind ``lead``, and its kind of numbers, all
    finite."""
    try:
        seen = np.asarray(given)
    except ValueError:  # lists of different lengths
        seen = np.asarray(None)
    kinds = {"uint8": "u", "bool": "biu"}.get(leaf.dtype, "biu" if leaf.sizes else "biuf")
    shape = (*lead, *leaf.shape)
    if seen.shape != shape or seen.dtype.kind not in kinds or (kinds == "u" and seen.dtype != np.uint8):
        raise ValueError(
            f"expected {_named(leaf)} {leaf.dtype} {list(shape)}, as observation_space says, got {shown(given)}"
        )
    if seen.dtype.kind == "f":
        if seen.dtype != np.float32:
            with np.errstate(over="ignore"):
                seen = seen.astype(np.float32)
        if not (fine := np.isfinite(seen)).all():
            raise ValueError(
                f"expected {_named(leaf)} of finite float32 numbers, got {first_odd(np.asarray(given), fine)}"
            )
    return seen


def _named(leaf: Leaf) -> str:
    return f"observation leaf {leaf.path}" if leaf.keys else "an observation"


def first_odd(numbers: Any, fine: Array) -> str:
    """The first of ``numbers`` that is not ``fine`` (bool), and where it is: ``nan at [0, 3]``; of one alone just that."""
    at = np.argwhere(~np.asarray(fine))[0]
    return f"{numbers[tuple(at)]} at {at.tolist()}" if at.size else f"{numbers}"


def _allowed(mask: Any, leaves: Sequence[ActionLeaf]) -> Array:
    """A mask as one row of bool: flat, or in the form of an action space, as Gymnasium's ``sample`` takes it."""
    if not leaves[0].keys:
        return _of_leaf(mask, leaves[0])
    if isinstance(mask, Mapping) or (isinstance(mask, tuple | list) and not all(map(np.isscalar, mask))):
        return np.concatenate([_of_leaf(at(mask, leaf), leaf) for leaf in leaves])
    return np.asarray(_flat(mask) != 0)


def _of_leaf(mask: Any, leaf: ActionLeaf) -> Array:
    row = _flat(mask)
    if leaf.kind == "MultiBinary" and row.shape == (len(leaf.sizes),):  # a number a bit: 0 or 1 alone, or 2, either
        return np.stack([row != 1, row != 0], axis=1).ravel()
    return np.asarray(row != 0)


def _flat(mask: Any) -> Array:
    """Numbers in tuples and arrays, as one row."""
    if isinstance(mask, tuple | list) and not all(map(np.isscalar, mask)):
        return np.concatenate([_flat(part) for part in mask])
    row = np.asarray(mask).ravel()
    # Not what is added to logits, 0 and -inf, which would allow the opposite.
    if row.dtype.kind not in "biuf" or not (fine := row >= 0).all():
        came = first_odd(row, fine) if row.dtype.kind in "if" else shown(mask)
        raise ValueError(f"expected a mask of 1 for what is allowed and 0 for what is not, got {came}")
    return row


def _native(leaf: ActionLeaf, choices: Array, lead: tuple[int, ...]) -> Any:
    """Choices as the space has them: Python's int of a Discrete, for authors ask for one."""
    if not lead and (leaf.kind == "Discrete" or (not leaf.shape and len(leaf.sizes) == 1)):
        return int(choices[0]) + leaf.start[0]
    return (choices + np.asarray(leaf.start)).astype(leaf.dtype).reshape(*lead, *leaf.shape)


def _nested(found: Mapping[Keys, Any]) -> Any:
    """Leaves by their keys as a Dict or Tuple space has them: whole numbers count a tuple's places."""
    if list(found) == [()]:
        return found[()]
    inner: dict[str | int, dict[Keys, Any]] = {}
    for keys, value in found.items():
        inner.setdefault(keys[0], {})[keys[1:]] = value
    values = {key: _nested(part) for key, part in inner.items()}
    return tuple(values.values()) if all(isinstance(key, int) for key in values) else values

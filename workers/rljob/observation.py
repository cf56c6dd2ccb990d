"""Observations as they are recorded and learned from: one array, or a dict of them where an environment shows several kinds.

All floats of an environment lie side by side in one column, all indices in another, all bytes in a third, and each picture has
one of its own; ``rljob.envs.spec`` says which leaf of the environment's space lies where. An observation of one column is that
array, and no dict, whether it is numpy's or torch's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]

MAX_PICTURES = 4
PICTURES = ("frames", *(f"frames{number}" for number in range(1, MAX_PICTURES)))
"""Columns of pictures, in their order."""


@dataclass(frozen=True, slots=True)
class ObservationColumn:
    """One kind of numbers: ``shape`` (F*) of a row, and ``stack`` (S), how many of the newest rows an observation has of it.

    ``name``: ``frames``, ``frames1`` ... of pictures, ``vector`` of floats, ``latents`` of an encoder's, ``index`` of whole
    numbers that become one-hot, ``octets`` of bytes. ``most``: of an index, the largest number in each place.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    stack: int = 1
    most: tuple[int, ...] = ()

    @property
    def observed(self) -> tuple[int, ...]:
        """(S, *F): the shape of it in one observation."""
        return (self.stack, *self.shape)

    @property
    def row_bytes(self) -> int:
        """Memory of one row, uncompressed."""
        return prod(self.shape) * self.dtype.itemsize

    def drawn(self, generator: np.random.Generator, *extents: int) -> Array:
        """Random numbers of this column, [*extents, S, *F]: any that it can hold."""
        shape = (*extents, *self.observed)
        if self.most:
            return generator.integers(0, np.array(self.most) + 1, shape).astype(self.dtype)
        drawn = generator.integers(0, 256, shape) if self.dtype == np.uint8 else generator.normal(size=shape)
        return drawn.astype(self.dtype)

    def problem(self, array: Array, shape: tuple[int, ...]) -> str | None:
        """What is wrong with ``array`` as numbers of this column in that shape, from any sender."""
        if array.dtype != self.dtype or array.shape != shape:
            return f"{self.name} is {array.dtype}{list(array.shape)}, expected {self.dtype}{list(shape)}"
        if self.dtype.kind == "f" and not np.isfinite(array).all():
            return f"{self.name} is not finite"
        if self.most and ((array < 0).any() or (array > np.array(self.most)).any()):
            return f"{self.name} holds numbers beyond those of its space"
        return None


Columns = tuple[ObservationColumn, ...]


def frames(shape: Sequence[int], dtype: DTypeLike, stack: int = 1) -> Columns:
    """The columns of an environment that shows ``frames`` [*F] alone."""
    return (ObservationColumn("frames", np.dtype(dtype), tuple(int(side) for side in shape), stack),)


def each(function: Callable[..., Any], observation: Any, *others: Any) -> Any:
    """What ``function`` gives for the array of each column, of the ``others`` too, as an observation."""
    if not isinstance(observation, Mapping):
        return function(observation, *others)
    return {name: function(array, *(other[name] for other in others)) for name, array in observation.items()}


def arrays_of(observation: Any) -> tuple[Any, ...]:
    """The arrays of its columns, in their order."""
    return tuple(observation.values()) if isinstance(observation, Mapping) else (observation,)


def rows_of(observation: Any) -> int:
    """How many observations these are: the first extent of every array."""
    return len(arrays_of(observation)[0])


def of_columns(columns: Columns, arrays: Sequence[Any]) -> Any:
    """An observation of ``arrays``, one of each column."""
    return (
        arrays[0] if len(columns) == 1 else {column.name: array for column, array in zip(columns, arrays, strict=True)}
    )


def by_column(columns: Columns, observation: Any) -> dict[str, Any]:
    """The array of each column by its name, of one column too. Raises ValueError where it has others."""
    found = observation if isinstance(observation, Mapping) else {columns[0].name: observation}
    if found.keys() != {column.name for column in columns}:
        raise ValueError(
            f"an observation of {', '.join(c.name for c in columns)} was expected, it has {', '.join(found)}"
        )
    return {column.name: found[column.name] for column in columns}


def zeros(columns: Columns, *extents: int) -> Any:
    """Observations of zeros, [*extents, S, *F] of each column."""
    return of_columns(columns, [np.zeros((*extents, *column.observed), column.dtype) for column in columns])

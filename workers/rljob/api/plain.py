"""What a manifest can hold of the values that a program has: the one walk that everything from Python goes through."""

import math
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from rljob.api.problems import ABSENT, Location, ManifestError, Problem, path_of
from rljob.loading import OF_THE_PROGRAM

MAX_VALUES: Final = 100_000
"""Values of a document; one that an alias repeats counts each time."""
MOST_DIGITS: Final = 300
"""For an integer. Longer ones exceed the floats that other programs read, and Python refuses 4,300 digits."""
_DEEPEST: Final = 64
_HALF: Final = re.compile("[\ud800-\udfff]")
"""A half of a character beyond 16 bits, which is no text by itself."""


def plain(value: Any, at: Location = ()) -> Any:
    """A deep copy of ``value`` that consists of what JSON has. What appears twice in it comes apart, so that a change stays where
    it was made. Mappings become dicts, tuples lists, paths texts, NumPy's numbers and arrays those of Python.

    Nothing else is converted. Raises ManifestError with everything that a manifest can't hold, each by its place below ``at``:
    numbers that are not finite, integers of more than 300 digits, keys that are no texts, texts that are no valid Unicode, any
    other type. What is too large or contains itself is the only problem then.
    """
    problems: list[Problem] = []
    found = _copy(value, at, problems, [MAX_VALUES])
    if problems:
        raise ManifestError(problems)
    return found


def _copy(value: Any, at: Location, problems: list[Problem], left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0 or len(at) > _DEEPEST:
        words = f"allowed: up to {MAX_VALUES:,} values in up to {_DEEPEST} levels; it may contain itself"
        raise ManifestError([Problem(path_of(at[:4]), ABSENT, words)])
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif hasattr(value, "tolist"):
        value = value.tolist()
    try:
        if isinstance(value, Mapping):
            return {
                _text(key, " as a key"): _copy(each, (*at, str(key)), problems, left) for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [_copy(each, (*at, index), problems, left) for index, each in enumerate(value)]
        return _scalar(value)
    except TypeError as error:
        problems.append(Problem(path_of(at) or "manifest", ABSENT if isinstance(value, int) else value, str(error)))


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 10**MOST_DIGITS:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        return _text(value)
    if callable(value):
        raise TypeError(f"allowed: the name of a function or a class, such as env.py:make; {OF_THE_PROGRAM}")
    numbers = f"finite numbers, integers of up to {MOST_DIGITS} digits"
    raise TypeError(f"allowed: texts, {numbers}, true, false, null, and lists and mappings of them")


def _text(value: Any, as_what: str = "") -> str:
    if isinstance(value, str) and not _HALF.search(value):
        return str.__str__(value)  # of an Enum its value
    raise TypeError(f"allowed{as_what}: text that is valid Unicode" + (f", not {value!r}" if as_what else ""))

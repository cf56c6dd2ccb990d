"""What can be wrong with a manifest, and how it is reported: where, what was found, what is allowed; and the one walk
(`plain`) that values from Python go through, which refuses what no manifest can hold."""

import difflib
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rljob.loading import OF_THE_PROGRAM

_SHOWN_CHARACTERS = 80
Location = tuple[str | int, ...]
"""A place in a document: keys and list indices, outermost first."""


class _Absent:
    """The value of a problem that is about something that is not there (a missing field) or about no value at all."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to change in a manifest.

    ``path`` is the place in the document (``spec.replay.capacity``), in the form that ``--set`` understands;
    ``value`` is what was found there (`ABSENT` if nothing was); ``message`` says what is allowed.
    """

    path: str
    value: Any
    message: str

    def __str__(self) -> str:
        if self.value is ABSENT:
            return f"{self.path}: {self.message}"
        odd = odd_character(self.path) or odd_character(self.value if isinstance(self.value, str) else "")
        return f"{self.path}: got {_shown(self.value)}{odd and f', with {odd}'}; {self.message}"


class ManifestError(ValueError):
    """A manifest that cannot be run. ``problems`` holds every problem found, ``str()`` shows one a line. ``alone``: some value is
    wrong by itself, whatever stands beside it."""

    def __init__(self, problems: Iterable[Problem], *, alone: bool = False) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.alone = alone
        super().__init__("\n".join(str(problem) for problem in self.problems))


def odd_character(text: str, *, unseen: bool = False) -> str:
    """The first character that is not ASCII, for a blank, dash or letter that came along from a page may look like another:
    ``U+00A0 (no-break space)``; empty where there is none. With ``unseen`` only one that can't be seen counts."""
    for one in text:
        if not one.isascii() and (not unseen or unicodedata.category(one)[0] in "ZC"):
            return f"U+{ord(one):04X} ({unicodedata.name(one, 'no character').lower()})"
    return ""


def path_of(location: Location) -> str:
    """``("spec", "failurePolicy", "rules", 0, "action")`` -> ``spec.failurePolicy.rules[0].action``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def value_at(document: Any, path: str) -> Any:
    """What a document has at ``path`` (``spec.learner.resources``), None where it has nothing there."""
    for part in path.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the known name that ``name`` was most likely meant to be, or None if none is near; at a likeness of 1, only case,
    dashes and underscores may differ."""
    by_lower: dict[str, str] = {}
    for candidate in known:
        by_lower.setdefault(folded(candidate), candidate)
    matches = difflib.get_close_matches(folded(name), list(by_lower), n=1, cutoff=likeness)
    return by_lower[matches[0]] if matches else None


def unknown_name(name: str, known: Sequence[str], noun: str) -> str:
    """Say that ``name`` is no known ``noun``, with the nearest known name, or all of them when none is near."""
    suggestion = nearest(name, known)
    if suggestion is not None:
        return f"unknown {noun}; did you mean {suggestion!r}?"
    return f"unknown {noun}; known here: {', '.join(sorted(known))}"


def folded(name: str) -> str:
    """Spelling without case, dashes and underscores, so that ``n_step`` is near ``nStep``."""
    return name.lower().replace("_", "").replace("-", "")


def _shown(value: Any) -> str:
    text = (
        {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else repr(value)
    )
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


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
    match value:
        case None | bool():
            return value
        case int() if abs(value) < 10**MOST_DIGITS:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case str():
            return _text(value)
    if callable(value):
        raise TypeError(f"allowed: the name of a function or a class, such as env.py:make; {OF_THE_PROGRAM}")
    numbers = f"finite numbers, integers of up to {MOST_DIGITS} digits"
    raise TypeError(f"allowed: texts, {numbers}, true, false, null, and lists and mappings of them")


def _text(value: Any, as_what: str = "") -> str:
    if isinstance(value, str) and not _HALF.search(value):
        return str.__str__(value)  # of an Enum its value
    raise TypeError(f"allowed{as_what}: text that is valid Unicode" + (f", not {value!r}" if as_what else ""))

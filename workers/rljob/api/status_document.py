"""Frozen dataclasses that are JSON objects on the wire: each field says how it is read and written.

A reader raises ``ValueError`` for a value of another type, or for a number that counts nothing. A key that is unknown is ignored,
and one that is missing or null is the field's default, so that two versions understand each other. ``from_document`` refuses a
document with a value that can't be read, ``lenient`` takes that value for missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, field, fields
from operator import attrgetter
from typing import Any, NamedTuple, Self

_LARGEST = float(1 << 63)
_LARGEST_MASS = 1e100


def text(value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise ValueError(f"it is {str(value)[:40]!r}, which is no text")
    return value


def flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"it is {str(value)[:40]!r}, which is neither true nor false")
    return value


def number(value: Any, largest: float = _LARGEST) -> float:
    """A finite number that may count something."""
    kind = type(value)
    if (kind is not float and kind is not int) or not -largest <= value <= largest:
        raise ValueError(f"it is {str(value)[:40]!r}, which is no number that counts anything")
    return float(value)


def mass(value: object) -> float:
    """A number with the range of a sum over priorities."""
    return number(value, _LARGEST_MASS)


def whole(value: Any) -> int:
    """A count; the part of it that is whole."""
    return value if type(value) is int and -_LARGEST <= value <= _LARGEST else int(number(value))


def within(low: float, high: float, read: Callable[[Any], Any] = number) -> Callable[[Any], Any]:
    """Reads a number that can't be less than ``low`` or more than ``high``."""

    def checked(value: object) -> Any:
        found = read(value)
        if not low <= found <= high:
            raise ValueError(f"it is {found:g}, outside {low:g} to {high:g}")
        return found

    return checked


def numbers(value: object) -> dict[str, float]:
    """Numbers by name; 0 for one that is null."""
    return {name: 0.0 if each is None else number(each) for name, each in json_object(value).items()}


def json_object(value: object) -> dict[str, Any]:
    """An object, whatever is in it."""
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value


def json_document(content: bytes | str) -> dict[str, Any]:
    """The JSON object in a member's answer. Raises ValueError, in words for the user."""
    try:
        document = json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError("its status is no JSON") from None
    if not isinstance(document, dict):
        raise ValueError("its status is no JSON object")
    return document


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def wire(
    read: Callable[[Any], Any], *, key: str = "", default: Any = MISSING, write: Any = None, left_out: bool = False
) -> Any:
    """A field of a ``Document``; without a default it is required. ``key``: its name in the document, where that is another one.
    ``write``: makes a plain JSON value of it, where it is none. ``left_out``: the document does not have it where it is None."""
    metadata = {"read": read, "key": key, "write": write, "left_out": left_out}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


class _Form(NamedTuple):
    """How a type of document is written and read: (name, key, read, required) of each field that is on the wire, in order."""

    keys: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    writes: tuple[tuple[str, Callable[[Any], Any]], ...]
    left_out: tuple[str, ...]
    reads: tuple[tuple[str, str, Callable[[Any], Any], bool], ...]


_FORMS: dict[type, _Form] = {}


def _form(cls: Any) -> _Form:
    if cls in _FORMS:
        return _FORMS[cls]
    named = [(each, each.metadata["key"] or each.name) for each in fields(cls) if "read" in each.metadata]
    form = _FORMS[cls] = _Form(
        tuple(key for _, key in named),
        attrgetter(*(each.name for each, _ in named)),
        tuple((key, each.metadata["write"]) for each, key in named if each.metadata["write"]),
        tuple(key for each, key in named if each.metadata["left_out"]),
        tuple(
            (
                each.name,
                key,
                each.metadata["read"],
                each.default is MISSING and each.default_factory is MISSING,
            )
            for each, key in named
        ),
    )
    return form


class Document:
    """A frozen dataclass whose fields say how they are read from JSON values and written as such."""

    __slots__ = ()

    def to_document(self) -> dict[str, Any]:
        """As plain JSON values, in the order of the fields."""
        form = _form(type(self))
        document = dict(zip(form.keys, form.values(self), strict=True))
        for key, write in form.writes:
            document[key] = write(document[key])
        for key in form.left_out:
            if document[key] is None:
                del document[key]
        return document

    @classmethod
    def from_document(cls, document: object) -> Self:
        """What ``to_document`` wrote, perhaps in another version. Raises ValueError, saying what is wrong, for anything else."""
        return cls._read(document, strict=True)

    @classmethod
    def lenient(cls, document: object) -> Self:
        """What can be read of a document: a value that is not as it should be is as if it were missing. Raises ValueError where
        it is no object, or lacks what is required."""
        return cls._read(document, strict=False)

    @classmethod
    def _read(cls, document: object, *, strict: bool) -> Self:
        if not isinstance(document, dict):
            raise ValueError("it is no JSON object")
        found: dict[str, Any] = {}
        for name, key, read, required in _form(cls).reads:
            value = document.get(key)
            if value is not None:
                try:
                    found[name] = read(value)
                    continue
                except ValueError as error:
                    if strict:
                        raise ValueError(f"{key}: {error}") from None
            if required:
                raise ValueError(f"{key}: it is missing")
        return cls(**found)


def plain(value: Document | None) -> dict[str, Any] | None:
    """A document in a document."""
    return None if value is None else value.to_document()


def lenient(kind: type[Document]) -> Callable[[object], Any]:
    """Reads a document in a document as far as it can be read."""
    return lambda value: kind.lenient(value)


def rows(kind: type[Document]) -> Callable[[object], tuple[Any, ...]]:
    """Reads a list of documents of one kind."""

    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError("it is no list of objects")
        return tuple(map(kind.from_document, value))

    return read


def plain_rows(rows: tuple[Document, ...]) -> list[dict[str, Any]]:
    """A list of documents as they are written."""
    return [row.to_document() for row in rows]


def rows_in_order(kind: type[Document]) -> Callable[[object], tuple[Any, ...]]:
    """Reads a list of documents of one kind, without those that can't be read: half a row may say what was never meant."""

    def read(value: object) -> tuple[Any, ...]:
        found = []
        for each in value if isinstance(value, list) else ():
            with suppress(ValueError):
                found.append(kind.from_document(each))
        return tuple(found)

    return read

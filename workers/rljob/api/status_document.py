"""Frozen dataclasses that are JSON objects on the wire, by pydantic: the annotation of a field says how it is read and written.

A key that is unknown is ignored, and one that is missing or null is the field's default, so that two versions understand each
other. ``from_document`` refuses a document with a value that is something else, or a number that counts nothing; ``lenient``
takes that value for missing.
"""

import json
from collections.abc import Mapping
from functools import cache
from math import isfinite
from typing import Annotated, Any, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from rljob.api.problems import Location, path_of

_LARGEST = 1 << 63
LARGEST_MASS = 1e100
"""The range of a sum over priorities."""
_FIGURE = 10**15
"""Beyond any run; a larger figure is garbage."""
_LONGEST_TEXT = 2000
"""Characters; a condition's message may have more, but more is not read."""


def _within(low: float, high: float) -> Any:
    return Field(strict=True, ge=low, le=high, allow_inf_nan=False)


def _present(value: Any) -> Any:
    """A JSON object without its nulls."""
    return {key: each for key, each in value.items() if each is not None} if isinstance(value, dict) else value


def _whole(value: Any) -> Any:
    """The part of a number that is whole."""
    return int(value) if type(value) is float and isfinite(value) else value


def _of(kind: Any) -> GetPydanticSchema:
    return GetPydanticSchema(lambda _, handler: handler.generate_schema(kind))


Plain: TypeAlias = Annotated[str, Field(strict=True)]
Words: TypeAlias = Annotated[Plain, AfterValidator(lambda words: words[:_LONGEST_TEXT])]
WordsByName: TypeAlias = Annotated[Mapping[str, str], _of(dict[str, Words])]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
Number: TypeAlias = Annotated[float, _within(-_LARGEST, _LARGEST)]
Mass: TypeAlias = Annotated[float, _within(-LARGEST_MASS, LARGEST_MASS)]
Whole: TypeAlias = Annotated[int, _within(-_LARGEST, _LARGEST), BeforeValidator(_whole)]
Amount: TypeAlias = Annotated[float, _within(0.0, _FIGURE)]
Count: TypeAlias = Annotated[int, _within(0, _FIGURE), BeforeValidator(_whole)]
Share: TypeAlias = Annotated[float, _within(0.0, 1.0)]
Score: TypeAlias = Annotated[float, _within(-_FIGURE, _FIGURE)]
Numbers: TypeAlias = Annotated[Mapping[str, float], _of(Annotated[dict[str, Number], BeforeValidator(_present)])]
Counts: TypeAlias = Annotated[Mapping[str, int], _of(dict[str, Count])]
Object: TypeAlias = Annotated[Mapping[str, Any], _of(dict[str, Any])]
"""Not looked into when read."""
LEFT_OUT: Any = Field(exclude_if=lambda value: value is None)
"""A mark of a field that the document does not have where it is None."""


def number(value: Any, largest: float = _LARGEST) -> float:
    """A finite number that may count something. Raises ValueError for anything else."""
    kind = type(value)
    if (kind is not float and kind is not int) or not -largest <= value <= largest:
        raise ValueError(f"it is {str(value)[:40]!r}, which is no number that counts anything")
    return float(value)


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


class Document:
    """A frozen dataclass that is read from JSON values and written as such."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_present, handler(source))

    @classmethod
    @cache
    def _codec(cls) -> TypeAdapter[Any]:
        return TypeAdapter(cls)

    def to_document(self) -> dict[str, Any]:
        """As plain JSON values, in the order of the fields."""
        return dict(self._codec().dump_python(self, by_alias=True, mode="json", warnings=False))

    @classmethod
    def from_document(cls, document: object) -> Self:
        """What ``to_document`` wrote, perhaps in another version. Raises ValueError, saying what is wrong, for anything else."""
        try:
            found: Self = cls._codec().validate_python(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            said = f"{path_of(first['loc']) or 'status'}: {first['msg']}, got {str(first['input'])[:40]!r}"
            raise ValueError(said) from error
        return found

    @classmethod
    def lenient(cls, document: object) -> Self:
        """What can be read of a document: a value that is not as it should be is as if it were missing, and so is a row of a list
        with such a value: half a row may say what was never meant. Raises ValueError where it is no object, or lacks what is
        required."""
        try:
            return cls.from_document(document)
        except ValueError as problem:
            cause = problem.__cause__
            errors = cause.errors(include_url=False) if isinstance(cause, ValidationError) else []
            # Where one is missing that is required, the object that lacks it.
            wrong = {each["loc"][:-1] if each["type"] == "missing" else each["loc"] for each in errors}
            less = _without(document, wrong)
            if () in wrong or less == document:
                raise
        return cls.lenient(less)


def _without(node: Any, wrong: set[Location], here: Location = ()) -> Any:
    """A copy of a document without what lies at ``wrong``; an entry of a list goes as a whole when anything in it is wrong."""
    if isinstance(node, dict):
        kept = {key: item for key, item in node.items() if (*here, key) not in wrong}
        return {key: _without(item, wrong, (*here, key)) for key, item in kept.items()}
    if isinstance(node, list):
        size = len(here) + 1
        touched = {place[:size] for place in wrong if len(place) >= size}
        return [_without(item, wrong, (*here, i)) for i, item in enumerate(node) if (*here, i) not in touched]
    return node

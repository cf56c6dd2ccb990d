"""Field types whose errors state the whole allowed range, and the base class of every API type.

Each marker goes into ``Annotated[...]``. It validates strictly (a quoted number is no integer, ``true`` is no number),
refuses NaN and infinities, and replaces pydantic's message by one that names everything that is allowed, so that a user
never
learns the lower bound only to meet the upper one next.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from annotated_types import Len
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, StrictBool
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, ValidationError, core_schema

from rljob.api.problems import plain

MAX_INTEGER = 10**15
"""Upper bound of every count: far beyond any run, and safe in JSON, where integers are exact up to 2^53."""

MAX_PLAIN_QUANTITY = 9_223_372_036_854_775_000
"""Upper bound of a quantity that is written as a number: a server takes it for a double, and that has to fit into 64 bits."""

DECIMAL_PATTERN = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,2})?$"
"""Numbers written as strings. What they match has one meaning in Python, CEL and Go; exponents of three digits are not needed."""
DECIMAL_LENGTH = 32
QUANTITY_PATTERN = r"^([0-9]+([.][0-9]*)?|[.][0-9]+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,2})?$"

ALLOWED = "allowed"
"""The error type of every marker here; its message is complete as it is."""


class APIModel(BaseModel):
    """Base of all manifest types: camelCase outside, snake_case inside, immutable, and no unknown field passes."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
    )


def refuse(allowed: str, at: str = "") -> PydanticCustomError:
    """The error of a value outside what ``allowed`` describes; a rule between fields names the one to change with ``at``.

    The text goes in as a template field, because braces in it would be read as one.
    """
    return PydanticCustomError(ALLOWED, "{allowed}", {"allowed": allowed, "at": at})


def _guarded(
    inner: CoreSchema,
    allowed: str,
    prepare: Callable[[Any], Any] | None = None,
    serialization: core_schema.SerSchema | None = None,
) -> CoreSchema:
    def check(value: Any, handler: core_schema.ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(prepare(value) if prepare else value)
        except (ValidationError, ValueError, OverflowError):
            raise refuse(allowed) from None

    return core_schema.no_info_wrap_validator_function(check, inner, serialization=serialization)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _plain(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer from ``low`` to ``high``, both allowed."""

    low: int
    high: int = MAX_INTEGER

    @property
    def allowed(self) -> str:
        """The range in words."""
        upper = f" to {_plain(self.high)}" if self.high < MAX_INTEGER else " upwards"
        return f"allowed: an integer from {_plain(self.low)}{upper}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Strict integer; booleans and texts are refused, a whole number such as 2e6 is one, as it is for an API server."""
        return _guarded(core_schema.int_schema(strict=True, ge=self.low, le=self.high), self.allowed, _whole)


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number between ``low`` and ``high``; the ends are allowed unless ``above`` / ``below`` say otherwise."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False

    @property
    def allowed(self) -> str:
        """The range in words."""
        if math.isinf(self.low) and math.isinf(self.high):
            return "allowed: a finite number"
        low = "" if math.isinf(self.low) else f" {'above' if self.above else 'from'} {_plain(self.low)}"
        if math.isinf(self.high):
            return f"allowed: a finite number{low}" + ("" if self.above else " upwards")
        return f"allowed: a number{low} {'to below' if self.below else 'to'} {_plain(self.high)}"

    def _number(self) -> CoreSchema:
        bounds: dict[str, float] = {}
        if not math.isinf(self.low):
            bounds["gt" if self.above else "ge"] = self.low
        if not math.isinf(self.high):
            bounds["lt" if self.below else "le"] = self.high
        return core_schema.float_schema(strict=True, allow_inf_nan=False, **bounds)  # type: ignore[arg-type]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Strict finite float; integers are accepted as floats, texts and booleans are not."""
        return _guarded(self._number(), self.allowed)


@dataclass(frozen=True, slots=True)
class DecimalText(Real):
    """A `Real` that a status holds as a string (``"0.6"``), as Kubernetes wants it of what controllers write and others read;
    a plain 0.6 is accepted too. In Python it is a float. It is written back as the string.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Float from a number or its text; to text in JSON."""

        def prepare(value: Any) -> Any:
            if isinstance(value, str):
                if len(value) > DECIMAL_LENGTH or not re.fullmatch(DECIMAL_PATTERN, value):
                    raise ValueError("no decimal number")
                return float(value)
            return value

        to_text = core_schema.plain_serializer_function_ser_schema(
            decimal_text, return_schema=core_schema.str_schema(), when_used="json"
        )
        return _guarded(self._number(), self.allowed, prepare, to_text)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "maxLength": DECIMAL_LENGTH, "pattern": DECIMAL_PATTERN}


@dataclass(frozen=True, slots=True)
class Text:
    """A string of at most ``longest`` characters that matches ``pattern``; ``kind`` describes it in errors."""

    longest: int
    kind: str = "text"
    pattern: str | None = None
    shortest: int = 1

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        span = f"{self.shortest} to {self.longest}" if self.shortest else f"up to {self.longest}"
        return f"allowed: {self.kind}, {span} characters"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Strict string."""
        inner = core_schema.str_schema(
            strict=True, min_length=self.shortest, max_length=self.longest, pattern=self.pattern
        )
        return _guarded(inner, self.allowed)


FACTORY_PATTERN = r"[^:\n]+:[A-Za-z_][A-Za-z0-9_.]*"
"""``module:factory`` or ``file.py:factory``. Which names a module or a folder can have is for the loader to say."""


@dataclass(frozen=True, slots=True)
class WordOrFactory:
    """One of ``words``, or ``module:factory`` or ``file.py:factory``: something by name, or one's own."""

    words: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """What matches them all."""
        return f"^({'|'.join(self.words)}|{FACTORY_PATTERN})$"

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        return f'allowed: {", ".join(self.words)}, or "module:factory"'

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Strict string."""
        return _guarded(core_schema.str_schema(strict=True, max_length=253, pattern=self.pattern), self.allowed)


@dataclass(frozen=True, slots=True)
class ListOrWord:
    """A list of at most ``most`` entries, or one of a few words: of ``list[...] | Literal[...]``."""

    most: int
    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        return f"allowed: a list, such as [a, b], or {' or '.join(self.words)}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The list, whose entries say themselves what is wrong with them, or a word."""

        def check(value: Any, entries: core_schema.ValidatorFunctionWrapHandler) -> Any:
            if isinstance(value, list | tuple):
                return entries(value)
            if isinstance(value, str) and value in self.words:
                return value
            raise refuse(self.allowed)

        listed = handler.generate_schema(Annotated[get_args(source)[0], Len(0, self.most)])
        as_it_is = core_schema.plain_serializer_function_ser_schema(lambda value: value)
        return core_schema.no_info_wrap_validator_function(check, listed, serialization=as_it_is)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """No type says so: a text is one of the words, numbers are shut out by two bounds that no number keeps, all else one by
        one."""
        return {
            "x-kubernetes-preserve-unknown-fields": True,
            "pattern": f"^({'|'.join(self.words)})$",
            "maxItems": self.most,
            "minimum": 1,
            "maximum": 0,
            "maxProperties": 0,
            "not": {"enum": [True, False, {}]},
        }


_QUANTITY = re.compile(QUANTITY_PATTERN)
_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def quantity(text: str) -> float:
    """The number a Kubernetes quantity stands for: ``"500m"`` -> 0.5, ``"4Gi"`` -> 4294967296.0. ValueError if it is
    none."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no Kubernetes quantity")
    number, suffix = float(match[1]), match[3] or ""
    if suffix in _DECIMAL_SUFFIXES:
        return number * 10.0 ** _DECIMAL_SUFFIXES[suffix]
    if suffix.endswith("i"):
        return number * 2.0 ** (10 * (1 + "KMGTPE".index(suffix[0])))
    return number * 10.0 ** int(suffix[1:]) if suffix else number


@dataclass(frozen=True, slots=True)
class QuantityText:
    """A Kubernetes quantity, such as ``500m`` or ``4Gi``, kept as the string. ``fractions``: whether one without a unit may be
    written as a number with a fraction (``cpu: 0.5``), as pods have it; a whole number always may."""

    fractions: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Strict string, or a number that becomes one."""

        def prepare(value: Any) -> Any:
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            if plain and value <= MAX_PLAIN_QUANTITY and (self.fractions or isinstance(_whole(value), int)):
                value = f"{_whole(value)}"
            if isinstance(value, str):
                quantity(value)
            return value

        inner = core_schema.str_schema(strict=True, max_length=32)
        return _guarded(inner, 'allowed: a Kubernetes quantity from 0 upwards, such as "500m", "2", "4Gi"', prepare)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """A text or a whole number. No type says so of one with a fraction; what is neither number nor text is shut out one by
        one: maps and lists that hold something by the two maxima, all else by ``not``."""
        found = {"minimum": 0, "pattern": QUANTITY_PATTERN, "maxLength": 32}
        if not self.fractions:
            return {"x-kubernetes-int-or-string": True, **found}
        others = {
            "maximum": MAX_PLAIN_QUANTITY,
            "maxProperties": 0,
            "maxItems": 0,
            "not": {"enum": [True, False, {}, []]},
        }
        return {"x-kubernetes-preserve-unknown-fields": True, **found, **others}


def plain_number(value: Any) -> Any:
    """A number as people write it: ``8.0`` -> ``8``; anything else as it is."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < MAX_INTEGER
    return int(value) if whole else value


def decimal_text(number: float) -> str:
    """A number as the manifest writes it: ``8.0`` -> ``"8"``, ``0.6`` -> ``"0.6"``."""
    return repr(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


@dataclass(frozen=True, slots=True)
class JSONObject:
    """A mapping of anything that JSON can hold, with at most ``most`` entries; handed on as it is."""

    most: int = 64

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A dictionary with texts as keys; what is inside is not looked at further."""
        inner = core_schema.dict_schema(
            core_schema.str_schema(strict=True), core_schema.any_schema(), max_length=self.most
        )
        allowed = f"allowed: a mapping such as {{difficulty: 1}} of what JSON can hold, up to {self.most} entries"
        return _guarded(inner, allowed, plain)


Flag = StrictBool
Quantity = Annotated[str, QuantityText()]
Name = Annotated[str, Text(63, "a DNS label (lower-case letters, digits, '-')", r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Seconds = Annotated[int, Integer(1, 10**9)]
SecondsOrZero = Annotated[int, Integer(0, 10**9)]

"""What the types of a status have in common: their base, and the texts, counts and times that their fields are made of. A time is
seconds since 1970 in Python, and RFC 3339 in UTC with milliseconds in JSON."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from rljob.api.types import Integer, Text, refuse

_LATEST = 253_402_300_799.0
"""The last second of the year 9999."""


def stamp(seconds: float) -> float:
    """``seconds`` as a `Timestamp` keeps it: whole milliseconds, so that a time survives its way through JSON unchanged."""
    return round(seconds * 1000) / 1000


@lru_cache(maxsize=4096)  # a status repeats its times from one writing to the next
def rfc3339(seconds: float) -> str:
    """Unix ``seconds`` as text: ``2026-11-21T16:05:00.250Z``, without the fraction where it is zero."""
    milliseconds = round(seconds * 1000)
    whole = datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    rest = milliseconds % 1000
    return f"{whole}.{rest:03d}Z" if rest else f"{whole}Z"


@lru_cache(maxsize=4096)
def parse_rfc3339(text: str) -> float:
    """Unix seconds of an RFC 3339 time with a zone. ValueError if ``text`` is none."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it as 2026-11-21T16:05:00Z")
    return stamp(moment.timestamp())


@dataclass(frozen=True, slots=True)
class TimestampText:
    """A time as RFC 3339 text in JSON, Unix seconds in Python."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any) -> float:
            try:
                seconds = parse_rfc3339(value) if isinstance(value, str) else stamp(float(value))
            except (TypeError, ValueError, OverflowError):
                seconds = math.nan
            if not 0 <= seconds <= _LATEST:
                raise refuse("allowed: a time such as 2026-11-21T16:05:00Z")
            return seconds

        to_text = core_schema.plain_serializer_function_ser_schema(
            rfc3339, return_schema=core_schema.str_schema(), when_used="json"
        )
        return core_schema.no_info_plain_validator_function(read, serialization=to_text)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "format": "date-time", "maxLength": 40}


Timestamp = Annotated[float, TimestampText()]


MAX_MESSAGE = 1024
"""Longest message; the controller cuts longer ones."""

Count = Annotated[int, Integer(0)]
Message = Annotated[str, Text(MAX_MESSAGE, "text", shortest=0)]
ShortText = Annotated[str, Text(253, "text", shortest=0)]
Word = Annotated[str, Text(64, "a CamelCase word", shortest=0)]


class StatusModel(BaseModel):
    """Base of the status types: camelCase outside, snake_case inside, immutable; unknown fields are ignored."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
    )

    def document(self) -> dict[str, Any]:
        """The status as plain values, as the cluster's API and ``status.json`` hold it; unset fields are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

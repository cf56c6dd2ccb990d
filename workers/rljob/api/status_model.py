"""What the types of a status have in common: their base, and the texts, counts and times that their fields are made of. A time is
seconds since 1970 in Python, and RFC 3339 in UTC with milliseconds in JSON."""

import math
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel

from rljob.api.types import Integer, Text, refuse

_LATEST = 253_402_300_799.0
"""The last second of the year 9999."""


def stamp(seconds: float) -> float:
    """``seconds`` as a `Timestamp` keeps it: whole milliseconds, so that a time survives its way through JSON unchanged."""
    return round(seconds * 1000) / 1000


@lru_cache(maxsize=4096)  # a status repeats its times from one writing to the next
def rfc3339(seconds: float) -> str:
    """Unix ``seconds`` as text: ``2026-11-21T16:05:00.250Z``, without the fraction where it is zero."""
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    return datetime.fromtimestamp(whole, UTC).strftime(
        f"%Y-%m-%dT%H:%M:%S{f'.{milliseconds:03d}' if milliseconds else ''}Z"
    )


@lru_cache(maxsize=4096)
def parse_rfc3339(text: str) -> float:
    """Unix seconds of an RFC 3339 time with a zone. ValueError if ``text`` is none."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it as 2026-11-21T16:05:00Z")
    return stamp(moment.timestamp())


def _seconds(value: Any) -> float:
    """Unix seconds of a time, or of its text."""
    try:
        seconds = parse_rfc3339(value) if isinstance(value, str) else stamp(float(value))
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds <= _LATEST:
        raise refuse("allowed: a time such as 2026-11-21T16:05:00Z")
    return seconds


Timestamp = Annotated[
    float,
    PlainValidator(_seconds),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 40}),
]
"""A time as RFC 3339 text in JSON, Unix seconds in Python."""


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

"""Times in a status: seconds since 1970 in Python, RFC 3339 in UTC with milliseconds in JSON."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from rljob.api.types import refuse

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

"""What the types of a status have in common: their base, and the texts and counts that their fields are made of."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from rljob.api.types import Integer, Text

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

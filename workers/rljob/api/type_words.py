"""Types in the words of the manifest: what `rljob explain` and the reference say a field takes."""

import re
from typing import Any, Literal, get_args, get_origin

from annotated_types import MaxLen, MinLen

from rljob.api.fields import TypedPlace
from rljob.api.types import DecimalText, Integer, JSONObject, ListOrWord, QuantityText, Real, Text, WordOrFactory

SECTION = "section"
"""What has fields of its own."""
_SINGULAR = re.compile(rf"^(integer|number|text|mapping|value|{SECTION})\b")


def type_in_words(place: TypedPlace) -> str:
    """What a place takes, with its bounds: ``number from 0 to 1``, ``one of Auto, Enabled, Disabled``."""
    marked = next((words for marker in place.metadata if (words := _of_marker(marker))), None)
    if marked is not None:
        return marked
    if place.model is not None:
        return SECTION
    if place.is_list:
        entry = place.below(0)
        assert entry is not None
        words = next((f", or {' or '.join(m.words)}" for m in place.metadata if isinstance(m, ListOrWord)), "")
        return f"list of {_plural(type_in_words(entry))}{_size(place.metadata)}{words}"
    if get_origin(place.annotation) is dict:
        value = place.below("")
        return "mapping" if value is None else f"map of texts to {_plural(type_in_words(value))}"
    if get_origin(place.annotation) is Literal:
        allowed = [word or '""' for word in get_args(place.annotation)]
        return allowed[0] if len(allowed) == 1 else f"one of {', '.join(allowed)}"
    return {bool: "true or false", int: "integer", float: "time", Any: "value"}.get(
        place.annotation, "text"
    )  # status has times alone


def _of_marker(marker: Any) -> str:
    """The words of a marker; empty if it is none."""
    if isinstance(marker, ListOrWord):
        return ""  # said with the list
    allowed = getattr(marker, "allowed", "").removeprefix("allowed: ").removeprefix("an ").removeprefix("a ")
    if isinstance(marker, DecimalText):
        return f"text of a {allowed.removesuffix(' upwards')}"
    if isinstance(marker, Integer | Real):
        return allowed.replace("finite number", "number").removesuffix(" upwards")
    if isinstance(marker, WordOrFactory):
        return f"one of {allowed}"
    if isinstance(marker, Text):
        return "text" if marker.kind == "text" else f"text: {marker.kind}"
    if isinstance(marker, QuantityText):
        return "quantity, such as 500m, 2 or 4Gi"
    return "mapping" if isinstance(marker, JSONObject) else ""


def _plural(words: str) -> str:
    return _SINGULAR.sub(r"\1s", words)


def _size(metadata: tuple[Any, ...]) -> str:
    most = next((item.max_length for item in metadata if isinstance(item, MaxLen)), None)
    most = next((item.most for item in metadata if isinstance(item, ListOrWord)), most)
    least = next((item.min_length for item in metadata if isinstance(item, MinLen)), 0)
    if most is None:
        return f", at least {least}" if least else ""
    return f", {most}" if least == most else f", {least} to {most:,} of them" if least else f", at most {most:,}"

"""What a null in a manifest stands for, the same as on an API server: a field or an entry of a map that is not given."""

from __future__ import annotations

from typing import Any

from rljob.api.job import RLJob
from rljob.api.paths import TypedPlace


def without_nulls(document: dict[str, Any]) -> dict[str, Any]:
    """A copy of a manifest without the nulls that count as not given.

    Those of known fields go, and those in maps of a known kind (labels, resources). The others stay for the checks: under
    an unknown name, where a misspelt field must be refused although it holds nothing; as an entry of a list; and inside
    what has no schema, a pod template, where a null removes a field of the generated pod.
    """
    found: dict[str, Any] = _without(document, TypedPlace(RLJob))
    return found


def _without(value: Any, place: TypedPlace | None) -> Any:
    if isinstance(value, dict) and place is not None:
        below = {key: place.below(key) for key in value}
        return {
            key: _without(item, below[key]) for key, item in value.items() if item is not None or below[key] is None
        }
    if isinstance(value, list) and place is not None and place.is_list:
        return [_without(item, place.below(0)) for item in value]
    return value

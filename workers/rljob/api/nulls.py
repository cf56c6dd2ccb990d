"""What a null in a manifest stands for, the same as on an API server: a field or an entry of a map that is not given."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from pydantic import BaseModel

from rljob.api.fields import unwrapped


def without_nulls(value: Any, annotation: Any) -> Any:
    """A copy of a document without the nulls that count as not given. ``annotation`` is the type that describes ``value``.

    Those of known fields go, and those in maps of a known kind (labels, resources). The others stay for the checks: under
    an unknown name, where a misspelt field must be refused although it holds nothing; as an entry of a list; and inside
    what has no schema, a pod template, where a null removes a field of the generated pod.
    """
    known, _ = unwrapped(annotation, [])
    if isinstance(value, dict) and isinstance(known, type) and issubclass(known, BaseModel):
        fields = {field.alias or name: field.annotation for name, field in known.model_fields.items()}
        return {
            key: without_nulls(item, fields.get(key))
            for key, item in value.items()
            if item is not None or key not in fields
        }
    if isinstance(value, dict) and get_origin(known) is dict and get_args(known)[1] is not Any:
        entry = get_args(known)[1]
        return {key: without_nulls(item, entry) for key, item in value.items() if item is not None}
    if isinstance(value, list) and get_origin(known) is list:
        return [without_nulls(item, get_args(known)[0]) for item in value]
    return value

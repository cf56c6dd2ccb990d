"""From pydantic's errors to problems in the words of the manifest: paths by name, the nearest known field, what is
allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from rljob.api.fields import literal_values
from rljob.api.job import API_VERSION, KIND, RLJob
from rljob.api.problems import ABSENT, Problem, nearest, unknown_name
from rljob.api.types import ALLOWED

Location = tuple[str | int, ...]
"""A place in a document: keys and list indices, outermost first."""


def structural_problems(error: ValidationError, document: Mapping[str, Any]) -> tuple[list[Problem], list[Location]]:
    """Pydantic's errors as problems, and where in the document the wrong values lie."""
    problems: list[Problem] = []
    places: list[Location] = []
    for item in error.errors(include_url=False):
        location = tuple(part for part in item["loc"] if part != "[key]")
        path = _path(location, document)
        kind, context = item["type"], item.get("ctx", {})
        value: Any = item["input"]
        if kind == ALLOWED:
            message = str(context["allowed"])
        elif kind == "missing":
            value, message = ABSENT, f"required: {_purpose(location)}"
        elif kind == "extra_forbidden":
            model = _model_at(location[:-1])
            known = [field.alias or name for name, field in model.model_fields.items()] if model else []
            message = unknown_name(str(location[-1]), known, "field")
        elif kind == "literal_error":
            expected = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            near = nearest(value, expected) if isinstance(value, str) and len(expected) > 1 else None
            message = f"allowed: {', '.join(expected)}" + (f"; did you mean {near!r}?" if near else "")
        elif kind.startswith("bool"):
            message = "allowed: true or false"
        elif kind == "string_unicode":
            message = "allowed: text that is valid Unicode"
        elif kind in ("model_type", "dict_type", "model_attributes_type"):
            message = "allowed: a mapping of fields"
        elif kind == "list_type":
            message = "allowed: a list"
        elif kind == "too_long":
            message = f"allowed: at most {context['max_length']} entries, here {context['actual_length'] or 'more'}"
        elif kind == "too_short":
            message = f"allowed: at least {context['min_length']} entry"
        else:
            message = f"allowed: something else ({item['msg']})"
        problems.append(Problem(path, value, message))
        places.append(location)
    return problems, places


def _path(location: Location, document: Any) -> str:
    """``("spec", "algorithm", "parameters", 0, "value")`` -> ``spec.algorithm.parameters.gamma``: entries with a name
    go by it."""
    text, node = "", document
    for part in location:
        child = _child(node, part)
        if isinstance(part, int):
            name = child.get("name") if isinstance(child, dict) and text.endswith(".parameters") else None
            text += f".{name}" if isinstance(name, str) and name else f"[{part}]"
        else:
            text += f".{part}" if text else part
        node = child
    return text


def _child(node: Any, part: str | int) -> Any:
    if isinstance(node, dict):
        return node.get(part)
    if isinstance(node, list) and isinstance(part, int) and part < len(node):
        return node[part]
    return None


def _purpose(location: Location) -> str:
    model = _model_at(location[:-1])
    if location == ("apiVersion",):
        return API_VERSION
    if location == ("kind",):
        return KIND
    field = None
    if model is not None:
        field = next((f for n, f in model.model_fields.items() if (f.alias or n) == location[-1]), None)
    if field is None:
        return "a value"
    words = literal_values(field)
    meaning = (field.description or "a value").split("\n")[0].rstrip(".")
    return f"{meaning}; allowed: {', '.join(words)}" if words else meaning


def _model_at(location: Location) -> type[BaseModel] | None:
    """The model that describes the place ``location`` of an RLJob document, None where there is none."""
    annotation: Any = RLJob
    for part in location:
        if isinstance(part, int):
            annotation = next(iter(get_args(_unwrapped(annotation, list))), None)
            continue
        model = _unwrapped(annotation, BaseModel)
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return None
        field = next((f for n, f in model.model_fields.items() if (f.alias or n) == part), None)
        if field is None:
            return None
        annotation = field.annotation
    found = _unwrapped(annotation, BaseModel)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def _unwrapped(annotation: Any, wanted: type) -> Any:
    """Look through Optional to the member that is a ``wanted``."""
    candidates = [annotation, *get_args(annotation)]
    for candidate in candidates:
        plain = get_origin(candidate) or candidate
        if isinstance(plain, type) and issubclass(plain, wanted):
            return candidate
    return None

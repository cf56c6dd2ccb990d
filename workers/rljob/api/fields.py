"""What a field of a model is, seen from outside: its type without Optional, its marker, its words, its default."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rljob.api.types import Integer, JSONObject, ListOrWord, QuantityText, Real, Text, WordOrFactory, plain_number

Marker = Integer | Real | Text | QuantityText | JSONObject | WordOrFactory | ListOrWord
_MARKERS = (Integer, Real, Text, QuantityText, JSONObject, WordOrFactory, ListOrWord)


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [part for part in get_args(annotation) if part is not type(None)]
        assert len(rest) == 1 or get_origin(rest[0]) is list, annotation
        return rest[0]  # of a list or a word the list, beside which its marker (`ListOrWord`) has the words
    return annotation


def unwrapped(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:
    """The bare type and every piece of metadata, from Annotated and Optional around it."""
    annotation = _without_none(annotation)
    while hasattr(annotation, "__metadata__"):
        for item in annotation.__metadata__:
            metadata = [*metadata, *(item.metadata if isinstance(item, FieldInfo) else [item])]
        annotation = _without_none(annotation.__origin__)
    return annotation, metadata


def marker_of(field: FieldInfo) -> Marker | None:
    """The marker of a field's values, such as `Integer`."""
    _, metadata = unwrapped(field.annotation, list(field.metadata))
    return next((item for item in metadata if isinstance(item, _MARKERS)), None)


def literal_values(field: FieldInfo) -> list[str]:
    """The words that a field allows; empty if it is no choice of words."""
    annotation, _ = unwrapped(field.annotation, [])
    return list(get_args(annotation)) if get_origin(annotation) is Literal else []


def description_of(model: type[BaseModel], name: str) -> str:
    """The words of a field: the docstring below it; empty where there is none, or no source, as for a class typed at a prompt.

    Pydantic can collect them, for all types as they are imported: that takes a quarter of a second of each command and pod.
    """
    owner = next(each for each in model.__mro__ if name in inspect.get_annotations(each))
    return model.model_fields[name].description or _docstrings_below_fields(owner).get(name, "")


@cache
def _docstrings_below_fields(model: type) -> Mapping[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(model))
    except (OSError, TypeError):
        return {}
    found = {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for field, words in pairwise(definition.body):
        match field, words:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found


def paragraphs(description: str | None) -> tuple[str, ...]:
    """A docstring as paragraphs of one line each, without its marks for code."""
    parts = re.split(r"\n\s*\n", (description or "").replace("``", "").strip())
    return tuple(" ".join(part.split()) for part in parts if part)


def first_sentence(description: str | None) -> str:
    """The first sentence of a docstring; empty where there is none."""
    found = paragraphs(description)
    return re.split(r"(?<=\.) (?=[A-Z])", found[0])[0] if found else ""


def default_of(model: type[BaseModel], name: str) -> Any:
    """The default as JSON; `PydanticUndefined` where there is none. One that follows from other fields (`rljob.api.computed`) is
    not looked at here: what stands in the type is only its value in a job of defaults."""
    field = model.model_fields[name]
    if field.default_factory is not None and field.default_factory_takes_validated_data:
        return PydanticUndefined
    value = field.get_default(call_default_factory=True)
    return PydanticUndefined if value is None else _plain(value)


def _plain(value: Any) -> Any:
    """A default as JSON."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        plain = {field.alias or name: _plain(getattr(value, name)) for name, field in fields.items()}
        return {alias: item for alias, item in plain.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return plain_number(value)

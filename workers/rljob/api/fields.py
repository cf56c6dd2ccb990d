"""What a field of a model is, seen from outside (its type without Optional, its marker, its words, its default), and what the
types say about a place in a document: the way from `RLJob` down, by fields, entries of lists and keys of maps."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from rljob.api.types import Integer, JSONObject, ListOrWord, QuantityText, Real, Text, WordOrFactory, plain_number

Marker = Integer | Real | Text | QuantityText | JSONObject | WordOrFactory | ListOrWord
_MARKERS = (Integer, Real, Text, QuantityText, JSONObject, WordOrFactory, ListOrWord)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Follows:
    """A mark of a field whose default follows from other fields of its section: what that is, in words."""

    words: str


@dataclass(frozen=True, slots=True)
class OfParameters:
    """A mark of a field of ``spec.algorithm``: it is a parameter of these algorithms, and means and defaults to what their own
    parameter sets say."""

    sets: Mapping[str, type[BaseModel]]
    """Algorithm -> its parameter set."""
    of_all: bool = True
    """Whether no algorithm is without it, or its section says whose it is."""

    def grouped(self, told: Callable[[type[BaseModel]], T]) -> list[tuple[T, list[str]]]:
        """What ``told`` says of each parameter set, and of which algorithms it says so; first what it says of most."""
        said = {name: told(kind) for name, kind in self.sets.items()}
        different = [each for at, each in enumerate(said.values()) if each not in list(said.values())[:at]]
        groups = [(each, [name for name, other in said.items() if other == each]) for each in different]
        return sorted(groups, key=lambda group: -len(group[1]))


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


def mark_in(field: FieldInfo, kind: type[T]) -> T | None:
    """The mark of this ``kind`` that a field has."""
    _, metadata = unwrapped(field.annotation, list(field.metadata))
    return next((item for item in metadata if isinstance(item, kind)), None)


def literal_values(field: FieldInfo) -> list[str]:
    """The words that a field allows; empty if it is no choice of words."""
    annotation, _ = unwrapped(field.annotation, [])
    return list(get_args(annotation)) if get_origin(annotation) is Literal else []


def description_of(model: type[BaseModel], name: str) -> str:
    """The words of a field: the docstring below it; empty where there is none, or no source, as for a class typed at a prompt.

    Pydantic can collect them, for all types as they are imported: that takes a quarter of a second of each command and pod.
    """
    field = model.model_fields[name]
    if (mark := mark_in(field, OfParameters)) is not None:
        told = mark.grouped(lambda kind: description_of(kind, name))
        (first, _), *others = [group for group in told if group[0]]  # one set may say it for all
        having = () if mark.of_all else (f"For {in_words([*mark.sets])}.",)
        return " ".join([first, *(f"{in_words(names)}: {words}" for words, names in others), *having])
    owners = (each for each in model.__mro__ if name in inspect.get_annotations(each))
    return field.description or next(filter(None, (_docstrings_below_fields(each).get(name) for each in owners)), "")


def in_words(names: Sequence[str], word: str = "and") -> str:
    """``A, B and C``."""
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last


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
    """The default as JSON; `PydanticUndefined` where there is none. One that follows from other fields (`rljob.api.effective`) is
    not looked at here: what stands in the type is only its value in a job of defaults."""
    field = model.model_fields[name]
    if field.default_factory is not None and field.default_factory_takes_validated_data:
        return PydanticUndefined
    value = field.get_default(call_default_factory=True)
    mark = mark_in(field, OfParameters)
    if value is None and mark is not None:
        groups = mark.grouped(lambda kind: default_of(kind, name))
        return groups[0][0] if len(groups) == 1 else PydanticUndefined
    unset = value is None or value is PydanticUndefined
    return PydanticUndefined if unset else plain_number(to_jsonable_python(value, exclude_none=True))


def default_in_words(model: type[BaseModel], name: str) -> str:
    """The default of a field where no value says it: what it follows from, or that of each algorithm; else empty."""
    field = model.model_fields[name]
    if (follows := mark_in(field, Follows)) is not None:
        return follows.words
    if (mark := mark_in(field, OfParameters)) is None:
        return ""
    groups = mark.grouped(lambda kind: default_in_words(kind, name) or _said(default_of(kind, name)))
    if len(groups) == 1:
        return default_in_words(next(iter(mark.sets.values())), name)
    return "; ".join(f"{words} for {in_words(names)}" for words, names in groups)


def _said(value: Any) -> str:
    return "unset" if value is PydanticUndefined else json.dumps(value)


@dataclass(frozen=True, slots=True)
class TypedPlace:
    """A place that has a schema.

    Attributes:
        annotation: the type of its value, without Optional and Annotated around it.
        metadata: what was in Annotated, such as `Integer`.
        owner, name: the model and the Python name of the field that it is; None and empty for the root, an entry of a list and a
            value of a map.
    """

    annotation: Any
    metadata: tuple[Any, ...] = ()
    owner: type[BaseModel] | None = None
    name: str = ""

    @property
    def model(self) -> type[BaseModel] | None:
        """The model whose fields lie below; None where there is none."""
        found = self.annotation
        return found if isinstance(found, type) and issubclass(found, BaseModel) else None

    @property
    def field_names(self) -> tuple[str, ...]:
        """The fields below, by their names in the manifest, a section's own before those it shares with others; none where it
        is no section."""
        if self.model is None:
            return ()
        own = self.model.__annotations__
        fields = sorted(self.model.model_fields.items(), key=lambda item: item[0] not in own)
        return tuple(field.alias or name for name, field in fields)

    @property
    def field(self) -> FieldInfo | None:
        """The field that it is."""
        return self.owner.model_fields[self.name] if self.owner is not None else None

    @property
    def description(self) -> str:
        """The words of the field that it is; empty where it is none."""
        return description_of(self.owner, self.name) if self.owner is not None else ""

    @property
    def is_list(self) -> bool:
        """Whether its value is a list."""
        return get_origin(self.annotation) in (list, tuple)

    @property
    def is_map(self) -> bool:
        """Whether its value is a mapping of keys of the user's own."""
        return get_origin(self.annotation) is dict

    @property
    def entry(self) -> TypedPlace:
        """An entry where it is a list, else itself."""
        found = self.below(0) if self.is_list else None
        return self if found is None else found

    @property
    def is_text(self) -> bool:
        """Whether its value is a text, of whatever kind: a name, a quantity, a choice of words."""
        if get_origin(self.annotation) is Literal:
            return all(isinstance(word, str) for word in get_args(self.annotation))
        return self.annotation is str

    def fields_below(self) -> Iterator[tuple[str, TypedPlace]]:
        """The fields of a section by their names in the manifest."""
        for name in self.field_names:
            if (found := self.below(name)) is not None:
                yield name, found

    def below(self, step: str | int) -> TypedPlace | None:
        """The place one step further: a field by its name in the manifest, an entry of a list, a key of a map."""
        if self.model is not None:
            return _fields(self.model).get(str(step))
        if self.is_list:
            return _place(get_args(self.annotation)[0], [])
        if self.is_map:
            value = get_args(self.annotation)[1]
            return None if value is Any else _place(value, [])
        return None


@cache
def _fields(model: type[BaseModel]) -> Mapping[str, TypedPlace]:
    """The fields of a section by their names in the manifest. Every manifest that is read asks for all of them."""
    return {
        field.alias or name: _place(field.annotation, list(field.metadata), model, name)
        for name, field in model.model_fields.items()
    }


def places_below(place: TypedPlace, path: str) -> Iterator[tuple[str, TypedPlace]]:
    """Every field below ``place``, which lies at ``path``, each before those below it; ``[]`` stands after a list."""
    here = f"{path}[]" if place.is_list else path
    for name, below in place.entry.fields_below():
        yield f"{here}.{name}", below
        yield from places_below(below, f"{here}.{name}")


def typed_place(root: type[BaseModel], steps: Sequence[str | int]) -> TypedPlace | None:
    """The place at the end of ``steps``; None where the types say nothing about it: below a pod template, for instance, or after
    a field that does not exist."""
    found: TypedPlace | None = TypedPlace(root)
    for step in steps:
        found = found.below(step) if found is not None else None
    return found


def _place(annotation: Any, metadata: list[Any], owner: type[BaseModel] | None = None, name: str = "") -> TypedPlace:
    bare, found = unwrapped(annotation, metadata)
    return TypedPlace(bare, tuple(found), owner, name)

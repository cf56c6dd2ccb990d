"""What the types say about a place in a document: the way from `RLJob` down, by fields, entries of lists and keys of maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rljob.api.fields import description_of, unwrapped


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

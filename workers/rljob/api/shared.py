"""From the parameter sets of the built-in algorithms to fields of ``spec.algorithm``: a parameter that several of them have
stands there itself, once; a block has what one algorithm alone has. None is declared twice."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, Field, create_model

from rljob.api.declaration import BuiltIn
from rljob.api.fields import Follows, OfParameters, in_words, unwrapped
from rljob.api.mutability import LIVE, UNLEARNED, WHILE_SUSPENDED, Mutability, When, mark_of
from rljob.api.types import APIModel, Integer, WordOrFactory

Fields = dict[str, Any]
"""Python names of fields, and what `pydantic.create_model` wants of them."""


def shared_parameters(declared: Mapping[str, BuiltIn]) -> Fields:
    """The parameters that at least two of the algorithms have, each unset unless it is written."""
    sets = {name: each.parameters for name, each in declared.items()}
    names = dict.fromkeys(field for kind in sets.values() for field in kind.model_fields)
    having = {field: {name: kind for name, kind in sets.items() if field in kind.model_fields} for field in names}
    return {
        field: (_shared(field, found, len(found) == len(sets)), None)
        for field, found in having.items()
        if len(found) > 1
    }


def block(algorithm: str, declared: BuiltIn, shared: Mapping[str, Any]) -> type[APIModel]:
    """The section of what one algorithm alone has. A default that follows from a shared parameter is unset here."""
    kind, fields = declared.parameters, Fields()
    for name, field in kind.model_fields.items():
        if name not in shared:
            follows = field.default_factory is not None and field.default_factory_takes_validated_data
            taken: Any = field.annotation
            taken = taken | None if follows else taken
            made = field.default if field.default_factory is None else Field(default_factory=field.default_factory)
            marks = (*field.metadata, OfParameters({algorithm: kind}))
            fields[name] = (Annotated[taken, *marks], None if follows else made)
    made_model: type[APIModel] = create_model(f"{algorithm}Block", __base__=APIModel, __doc__=kind.__doc__, **fields)
    return made_model


def _shared(name: str, sets: Mapping[str, type[BaseModel]], of_all: bool) -> Any:
    """The type of a shared parameter: it takes what any of the algorithms takes. Each says itself what is too much for it."""
    fields = [kind.model_fields[name] for kind in sets.values()]
    bare, metadata = zip(*(unwrapped(field.annotation, list(field.metadata)) for field in fields), strict=True)
    of_values = [[each for each in found if not isinstance(each, Mutability | Follows | str)] for found in metadata]
    taken = _widest_type(bare)
    for markers in zip(*of_values, strict=True):
        taken = Annotated[taken, _widest(markers)]
    unlearned = [UNLEARNED] if all(UNLEARNED in found for found in metadata) else []
    return Annotated[taken | None, _mark(name, sets), *unlearned, OfParameters(sets, of_all)]


def _widest_type(types: tuple[Any, ...]) -> Any:
    if get_origin(types[0]) is not Literal:
        return types[0]
    return Literal[tuple(dict.fromkeys(word for each in types for word in get_args(each)))]


def _widest(markers: tuple[Any, ...]) -> Any:
    """A marker of values that takes all that these take. Raises TypeError where that is not known of such ones."""
    first = markers[0]
    if all(each == first for each in markers):
        return first
    if isinstance(first, Integer):
        return Integer(min(each.low for each in markers), max(each.high for each in markers))
    if isinstance(first, WordOrFactory):
        return WordOrFactory(tuple(dict.fromkeys(word for each in markers for word in each.words)))
    raise TypeError(f"a parameter of several algorithms has different bounds: {markers}")


def _mark(name: str, sets: Mapping[str, type[BaseModel]]) -> Mutability:
    """When it may change: what never does with one algorithm may with another, which Python alone can tell
    (`rljob.api.rules.transitions`)."""
    never = {algorithm: mark for algorithm, kind in sets.items() if (mark := never_changing(kind, name)) is not None}
    if len(never) == len(sets):
        return next(iter(never.values()))
    if all(mark_of(kind.model_fields[name]) == LIVE for kind in sets.values()):
        return LIVE
    because = next((mark.why for mark in never.values()), "")
    return (
        Mutability(When.WHILE_SUSPENDED, f"never with {in_words([*never])}, as {because}") if never else WHILE_SUSPENDED
    )


def never_changing(kind: type[BaseModel], name: str) -> Mutability | None:
    """The mark of a parameter that never changes with this parameter set."""
    mark = mark_of(kind.model_fields[name]) if name in kind.model_fields else None
    return mark if mark is not None and mark.when is When.NEVER else None


@cache
def names_in(kind: type[BaseModel]) -> Mapping[str, str]:
    """Name of each field in a manifest -> its Python name."""
    return {field.alias or name: name for name, field in kind.model_fields.items()}

"""What of a stored job may change, when, and whether it then learns otherwise: marks on the fields of the types, from which the
rules of a change are made, and of a comparison.

A mark counts for its field and for all below it, save what is marked there as never changing, or as live. What has none, and
lies below none, never changes, and changes what is learned: a new field is immutable until code makes a change of it take
effect, and marks it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from rljob.api.fields import mark_in, unwrapped


class When(StrEnum):
    """When a field may change."""

    ANY_TIME = "AnyTime"
    """The controller follows it at its next reconciliation, whatever runs."""
    LIVE = "Live"
    """The same, and a running learner takes it between two updates (`rljob.api.live`)."""
    WHILE_SUSPENDED = "WhileSuspended"
    """Roles read it when they start; so all of them have to start anew."""
    NEVER = "Never"
    """What was learned or stored would no longer fit."""

    @property
    def at_any_time(self) -> bool:
        """Whether it may change while roles run, which then go on."""
        return self in (When.ANY_TIME, When.LIVE)


@dataclass(frozen=True, slots=True)
class Mutability:
    """The mark. ``why``, of a field that never changes: what would go wrong."""

    when: When
    why: str = ""


ANY_TIME = Mutability(When.ANY_TIME)
LIVE = Mutability(When.LIVE)
WHILE_SUSPENDED = Mutability(When.WHILE_SUSPENDED)
UNLEARNED = "changes nothing of what is learned"
"""A mark beside it, of a field in which jobs may differ that learn the same and are judged alike."""
NEVER = Mutability(When.NEVER)


def never(why: str) -> Mutability:
    """The mark of a field that never changes, with the reason that its user is told."""
    return Mutability(When.NEVER, why)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the way to a field: its Python name, and its name in the manifest."""

    name: str
    alias: str


@dataclass(frozen=True, slots=True)
class MarkedField:
    """A field, or a whole section all of whose fields may change at the same time."""

    steps: tuple[Step, ...]
    mutability: Mutability

    @property
    def path(self) -> str:
        """Where it is below ``spec``, in the manifest's words."""
        return ".".join(step.alias for step in self.steps)

    @property
    def name(self) -> str:
        """Its Python name."""
        return self.steps[-1].name

    def parent_in(self, model: BaseModel) -> BaseModel | None:
        """The section of ``model`` that the place is in; None where an optional one is not there."""
        node: Any = model
        for step in self.steps[:-1]:
            node = None if node is None else getattr(node, step.name)
        return node  # type: ignore[no-any-return]


def places(model: type[BaseModel], *, whole_sections: bool = True) -> tuple[MarkedField, ...]:
    """Every field below ``model``, each with its mutability, in the order of the types.

    ``whole_sections``: a section is one place where all its fields have the same mutability. So it is where all that may change
    may only while the job is suspended; what in it never changes then comes before it. Else each field is one place.
    Lists are fields: their entries come and go with them. Raises TypeError where a mark lies below another one, save one as
    never changing or as live.
    """
    return tuple(_below(model, (), None, whole_sections))


def _below(
    model: type[BaseModel], steps: tuple[Step, ...], inherited: Mutability | None, whole_sections: bool
) -> Iterator[MarkedField]:
    for name, field in model.model_fields.items():
        annotation, _ = unwrapped(field.annotation, [])
        here = (*steps, Step(name, field.alias or name))
        own = mark_in(field, Mutability)
        if own is not None and inherited is not None and own.when not in (When.NEVER, When.LIVE):
            raise TypeError(f"{'.'.join(step.alias for step in here)} has a mark of mutability below another one")
        mark = own or inherited
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            yield MarkedField(here, mark or NEVER)
            continue
        found = list(_below(annotation, here, mark, whole_sections))
        kinds = {place.mutability for place in found}
        if whole_sections and len(kinds) == 1:
            yield MarkedField(here, kinds.pop())
        elif whole_sections and not any(kind.when.at_any_time for kind in kinds):
            yield from (place for place in found if place.mutability.when is When.NEVER)
            if any(kind.when is When.WHILE_SUSPENDED for kind in kinds):
                yield MarkedField(here, WHILE_SUSPENDED)
        else:
            yield from found

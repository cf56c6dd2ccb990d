"""A revision: tells whether a pod, or a whole job, was made from what the manifest says now.

It is a digest of what the user wrote, never of a rendered pod or of defaults: those differ from one release of the operator to
the next, and an upgrade must restart nothing.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rljob.api.job import RLJobSpec
from rljob.api.keyed import KEYED
from rljob.api.mutability import MarkedField, places
from rljob.api.pods import RoleSpec
from rljob.api.structure import without_nulls

from rljob_operator.core.member import Role
from rljob_operator.kube.render.roles import section_name

_ALIASES: Final = {name: field.alias or name for name, field in RoleSpec.model_fields.items()}
_OF_ONE_ROLE: Final = {
    *((section_name(role), alias) for role in Role for alias in _ALIASES.values()),
    ("actors", "spot"),
    ("actors", "topologySpread"),
    ("learner", "accelerator"),
    ("inference", "accelerator"),
    ("replay", "redis"),
}
"""(section, field) of what no other role reads."""
_PLACES: Final = tuple(
    place for place in places(RLJobSpec, whole_sections=False) if not place.mutability.when.at_any_time
)
_KEYED: Final = {field for _, field in KEYED}
_DIGITS: Final = 16


def revision(manifest: Mapping[str, Any], role: Role) -> str:
    """A digest of those fields of a manifest that a pod of ``role`` is made from or reads when it starts.

    ``manifest`` is the object as its user wrote it, without what presets and defaults add. Fields that may change at any time
    are not in it, nor what only other roles' pods are made from. The order of entries that have names does not matter.
    """
    return _digest(_written(manifest, _PLACES_OF_ROLES[role]))


def revision_of_job(manifest: Mapping[str, Any]) -> str:
    """The same of the pods of all roles."""
    return _digest(_written(manifest, _PLACES))


def _written(manifest: Mapping[str, Any], places: Iterable[MarkedField]) -> dict[str, Any]:
    spec = without_nulls(dict(manifest)).get("spec")
    return {place.path: _value(place, value) for place in places if (value := _at(spec, place)) is not None}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def _concerns(place: MarkedField, role: Role) -> bool:
    path = tuple(step.alias for step in place.steps[:2])
    return path not in _OF_ONE_ROLE or path[0] == section_name(role)


_PLACES_OF_ROLES: Final = {role: tuple(place for place in _PLACES if _concerns(place, role)) for role in Role}


def _at(spec: Any, place: MarkedField) -> Any:
    for step in place.steps:
        spec = spec.get(step.alias) if isinstance(spec, Mapping) else None
    return spec


def _value(place: MarkedField, value: Any) -> Any:
    """The value; of entries that are told apart by name the order is left out, since a server may change it."""
    if place.steps[-1].name not in _KEYED or not isinstance(value, list):
        return value
    return sorted(value, key=lambda entry: json.dumps(entry, sort_keys=True))

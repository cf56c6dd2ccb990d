"""What a job's objects are made with beside its manifest, and how it keeps that while it runs: the operator's images and other
settings, and a version. And revisions, which tell whether a pod, or a whole job, was made from what the manifest says now.

A worker image reads the variables, ports, paths and fields that its pod was rendered with, and members of one job talk to each
other. So a job that runs goes on with what it was started with under an operator with another configuration; under one whose pods
do not work beside its own it is left alone until it is suspended and resumed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cache, lru_cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from rljob.api.controller_memory import ControllerMemory, RenderingMemory
from rljob.api.job import RLJobSpec
from rljob.api.mutability import MarkedField, places
from rljob.api.roles import RoleSpec
from rljob.api.rule import KEYED
from rljob.api.status import RLJobStatus
from rljob.api.structure import without_nulls
from rljob.wire.version import WIRE_VERSION

from rljob_operator.core.member import Role
from rljob_operator.kube.render.roles import section_name
from rljob_operator.kube.render.settings import Settings

_PODS: Final = 4
"""Raised when a pod would no longer work beside those of its job that were rendered before, for another reason than the fields of
the manifest or the messages between roles."""


@cache
def version() -> int:
    """Tells releases apart whose pods can't work in one job: roles refuse a field that they do not know, and messages of another
    protocol."""
    paths = sorted(place.path for place in places(RLJobSpec, whole_sections=False))
    return int(hashlib.sha256(json.dumps([_PODS, WIRE_VERSION, *paths]).encode()).hexdigest()[:7], 16)


def offered(status: RLJobStatus, settings: Settings) -> RenderingMemory:
    """What the job is made with where it starts now."""
    return _memory_of(_at_a_start(status, settings), version())


@lru_cache(16)  # each turn asks, and the settings are the same for all jobs but those that keep a claim
def _memory_of(taken: Settings, version: int) -> RenderingMemory:
    return RenderingMemory(version=version, image=taken.image, gpu_image=taken.gpu_image, settings=as_text(taken))


def settings_for(status: RLJobStatus, settings: Settings) -> Settings:
    """What the job's objects are made with: ``settings`` of the operator, and of a job that runs those that it keeps."""
    fixed = status.controller.rendering
    if fixed is None or status.controller.active_since is None:
        return _at_a_start(status, settings)
    return started_with(fixed, settings)


def started_with(fixed: RenderingMemory, settings: Settings) -> Settings:
    """What a job's objects were made with when it was last started."""
    kept = with_kept(settings, fixed.settings)
    return replace(kept, image=fixed.image or settings.image, gpu_image=fixed.gpu_image)


def _at_a_start(status: RLJobStatus, settings: Settings) -> Settings:
    """The operator's settings. A job that was given a claim for its checkpoints keeps it when it comes up again, also where
    jobs are given none any more: what it has learned is there."""
    fixed = status.controller.rendering
    if fixed is None or settings.checkpoint_size:
        return settings
    had = with_kept(settings, fixed.settings)
    return replace(settings, checkpoint_size=had.checkpoint_size, checkpoint_class=had.checkpoint_class)


def is_of_another_release(memory: ControllerMemory) -> bool:
    """Whether a job runs with pods that do not work beside those of this release."""
    fixed = memory.rendering
    return memory.active_since is not None and fixed is not None and fixed.version != version()


AT_ONCE: Final = frozenset({"operator_namespaces", "prometheus_namespaces"})
"""Settings that no pod and no claim is made with: the newest ones count, also for a job that runs."""
KEPT: Final = tuple(each.name for each in fields(Settings) if each.name not in AT_ONCE | {"image", "gpu_image"})
"""All others, images apart, which have fields of their own: with them another pod of the job, a claim, its learner's files or its
suspension would differ."""

_FORM: Final = TypeAdapter(Settings)


def as_text(settings: Settings) -> str:
    """What a job's status keeps of the settings, as JSON."""
    found = _FORM.dump_python(settings, mode="json", include=set(KEPT))
    return json.dumps(found, separators=(",", ":"), sort_keys=True)


def with_kept(settings: Settings, text: str) -> Settings:
    """``settings`` with those that ``text`` has and this release knows; a text that can't be read has none."""
    return replace(settings, **_read(text))


@lru_cache(64)  # all jobs that one operator has started have the same
def _read(text: str) -> Mapping[str, Any]:
    try:
        written = json.loads(text)
        known = {name: written[name] for name in KEPT if name in written}
        found = _FORM.validate_python({"image": "of no matter", **known})
    except (ValidationError, ValueError, TypeError):
        return {}
    return {name: getattr(found, name) for name in known}


_OF_ONE_ROLE: Final = {
    *((section_name(role), field.alias or name) for role in Role for name, field in RoleSpec.model_fields.items()),
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


def revision(manifest: Mapping[str, Any], role: Role) -> str:
    """A digest of those fields of a manifest that a pod of ``role`` is made from or reads when it starts: of what its user wrote,
    never of a rendered pod or of defaults, which differ from one release of the operator to the next. An upgrade must restart
    nothing.

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
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


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
    if place.steps[-1].name not in KEYED or not isinstance(value, list):
        return value
    return sorted(value, key=lambda entry: json.dumps(entry, sort_keys=True))

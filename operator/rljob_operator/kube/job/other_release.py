"""The spec of a running job that another release of the operator has started, in the fields of that release. Pure.

The images of such a job are that release's. They refuse a field that was added since, and want the value of one that was removed
since; so what a pod reads when it starts keeps the fields that the job was started with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rljob.api import RLJob
from rljob.api.job import RLJobSpec
from rljob.api.paths import TypedPlace

_SPEC: Final = TypedPlace(RLJobSpec)


def known_part(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A stored spec without the fields that this release does not have."""
    return dict(_known(spec, _SPEC))


def in_fields_of_start(runs: RLJob, job: RLJob, started: Mapping[str, Any]) -> dict[str, Any] | None:
    """The spec of ``job`` in the fields of ``started``, the spec that the status keeps; None where those are this release's.

    ``runs`` is the same spec as this release reads it: it tells fields that were added since from those that the job's user has
    filled in since.
    """
    return None if _same_fields(_dumped(runs), started) else dict(_in_fields(_dumped(job), started, _SPEC))


def _dumped(job: RLJob) -> dict[str, Any]:
    return job.spec.model_dump(mode="json", by_alias=True, exclude_none=True)


def _known(value: Any, place: TypedPlace | None) -> Any:
    if isinstance(value, Mapping) and place is not None and _is_section(place):
        below = {key: place.below(key) for key in value}
        return {key: _known(item, below[key]) for key, item in value.items() if below[key] is not None}
    if isinstance(value, list) and place is not None and place.is_list:
        return [_known(each, place.below(0)) for each in value]
    return value


def _in_fields(now: Any, started: Any, place: TypedPlace | None) -> Any:
    if isinstance(now, list) and isinstance(started, list) and len(now) == len(started) and place is not None:
        return [_in_fields(one, other, place.below(0)) for one, other in zip(now, started, strict=True)]
    if not (isinstance(now, Mapping) and isinstance(started, Mapping) and place is not None and _is_section(place)):
        return now
    kept = {key: _in_fields(value, started[key], place.below(key)) for key, value in now.items() if key in started}
    return {**kept, **{key: value for key, value in started.items() if place.below(key) is None}}


def _is_section(place: TypedPlace) -> bool:
    """Whether it has fields, and no others than this release knows."""
    return place.model is not None and place.model.model_config.get("extra") == "forbid"


def _same_fields(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same_fields(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same_fields, one, other))
    return True

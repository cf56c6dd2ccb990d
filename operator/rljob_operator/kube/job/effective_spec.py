"""The spec that a stored job runs by. Pure.

While members of a job run, it goes by the presets and defaults that it was started with, whatever release of the operator looks
after it: a learner that is started again must not learn with other parameters than before. Fields that may change at any time are
taken from the stored object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from rljob.api import ManifestError, RLJob, parse_job
from rljob.api.effective import as_written
from rljob.api.job import API_VERSION, KIND, RLJobSpec
from rljob.api.mutability import Step, When, places
from rljob.api.rules.read_at_start import comparable, same
from rljob.api.status import RLJobStatus

from rljob_operator.kube.job.other_release import known_part

M = TypeVar("M", bound=BaseModel)

_FIELDS_AT_ANY_TIME: Final = tuple(
    place for place in places(RLJobSpec, whole_sections=False) if place.mutability.when is When.ANY_TIME
)
_AT_ANY_TIME: Final = tuple(place for place in places(RLJobSpec) if place.mutability.when is When.ANY_TIME)


def started_with(
    document: Mapping[str, Any], status: RLJobStatus, written: str, known: RLJob | None = None
) -> RLJob | None:
    """The job that runs, as the status has it; None where nothing of it runs, or its user has changed what roles read when they
    start. ``written`` is the digest of that; a digest of another release's fields says nothing of a change. ``known`` as for
    `stored_spec`."""
    digest = status.controller.started_with
    if status.controller.active_since is None or (not same(digest, written) and comparable(digest, written)):
        return None
    return stored_spec(document, status, known)


def stored_spec(document: Mapping[str, Any], status: RLJobStatus, known: RLJob | None = None) -> RLJob | None:
    """The job with the spec that the status says is in force; None where there is none, or this release does not take it.

    The preset's values are in it already. They are not merged again: this release's preset may have others. Fields that this
    release does not have are ignored. ``known``: a job with the metadata of ``document``; it is answered where it has that spec,
    since reading one takes longer.
    """
    if not status.effective_spec:
        return None
    if (
        known is not None
        and known.spec.model_dump(mode="json", by_alias=True, exclude_none=True) == status.effective_spec
    ):
        return known
    spec = {name: value for name, value in status.effective_spec.items() if name != "preset"}
    job = _parsed(document, spec) or _parsed(document, known_part(spec))
    if job is None:
        return None
    preset = status.effective_spec.get("preset")
    # Which fields its user wrote is in the stored object alone: in the status every field stands.
    written = {"metadata": about(document), "spec": document["spec"]}
    return as_written(job.model_copy(update={"spec": job.spec.model_copy(update={"preset": preset})}), written)


def with_changes(runs: RLJob, newest: RLJob) -> RLJob:
    """``runs`` with those values of ``newest`` that may change at any time, and its metadata."""
    spec = runs.spec
    for place in _AT_ANY_TIME:
        parent = place.parent_in(newest.spec)
        if parent is not None:
            spec = _with(spec, place.steps, getattr(parent, place.name))
    return newest.model_copy(update={"spec": spec})


def about(document: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that the job in force has. The rest is for the API server alone."""
    found = document["metadata"]
    return {"name": found["name"], "namespace": found["namespace"], "labels": found.get("labels") or {}}


def job_with(document: Mapping[str, Any], spec: Mapping[str, Any]) -> RLJob:
    """The stored job, with this spec. Raises `ManifestError`."""
    return parse_job({"apiVersion": API_VERSION, "kind": KIND, "metadata": about(document), "spec": dict(spec)})


def _parsed(document: Mapping[str, Any], spec: Mapping[str, Any]) -> RLJob | None:
    try:
        return job_with(document, spec)
    except ManifestError:
        return None


def with_additions(runs: RLJob, newest: RLJob, started: Mapping[str, Any]) -> RLJob:
    """``runs`` with those values of ``newest`` that may change at any time and for which ``started``, the spec as another release
    has stored it, has no place."""
    spec = runs.spec
    for steps in {_up_to_a_gap(place.steps, started) for place in _FIELDS_AT_ANY_TIME} - {()}:
        parent: Any = newest.spec
        for step in steps[:-1]:
            parent = None if parent is None else getattr(parent, step.name)
        if parent is not None:
            spec = _with(spec, steps, getattr(parent, steps[-1].name))
    return newest.model_copy(update={"spec": spec})


def _up_to_a_gap(steps: tuple[Step, ...], started: Any) -> tuple[Step, ...]:
    """The steps up to the first that ``started`` does not have; none where it has them all."""
    for number, step in enumerate(steps, 1):
        if not isinstance(started, Mapping) or step.alias not in started:
            return steps[:number]
        started = started[step.alias]
    return ()


def _with(model: M, steps: tuple[Step, ...], value: Any) -> M:
    """A copy of ``model`` with ``value`` at the end of ``steps``; itself where a section on the way is not there."""
    name = steps[0].name
    if len(steps) == 1:
        return model.model_copy(update={name: value})
    section = getattr(model, name)
    return model if section is None else model.model_copy(update={name: _with(section, steps[1:], value)})

"""The spec that a stored job runs by. Pure.

While members of a job run, it goes by the presets and defaults that it was started with: a learner that is started again must not
learn with other parameters than before. Fields that may change at any time are taken from the stored object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rljob.api import ManifestError, RLJob, parse_job
from rljob.api.effective import as_written
from rljob.api.job import API_VERSION, KIND, RLJobSpec
from rljob.api.live import with_value
from rljob.api.mutability import places
from rljob.api.status import RLJobStatus

_AT_ANY_TIME: Final = tuple(place for place in places(RLJobSpec) if place.mutability.when.at_any_time)


def started_with(
    document: Mapping[str, Any], status: RLJobStatus, written: str, known: RLJob | None = None
) -> RLJob | None:
    """The job that runs, as the status has it; None where nothing of it runs, or its user has changed what roles read when they
    start. ``written`` is the digest of that. ``known`` as for `stored_spec`."""
    if status.controller.active_since is None or status.controller.started_with != written:
        return None
    return stored_spec(document, status, known)


def stored_spec(document: Mapping[str, Any], status: RLJobStatus, known: RLJob | None = None) -> RLJob | None:
    """The job with the spec that the status says is in force; None where there is none, or this release does not take it.

    The preset's values are in it already. They are not merged again: this release's preset may have others. ``known``: a job with
    the metadata of ``document``; it is answered where it has that spec, since reading one takes longer.
    """
    if not status.effective_spec:
        return None
    if (
        known is not None
        and known.spec.model_dump(mode="json", by_alias=True, exclude_none=True) == status.effective_spec
    ):
        return known
    spec = {name: value for name, value in status.effective_spec.items() if name != "preset"}
    try:
        job = job_with(document, spec)
    except ManifestError:
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
            spec = with_value(spec, place.steps, getattr(parent, place.name))
    return newest.model_copy(update={"spec": spec})


def about(document: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that the job in force has. The rest is for the API server alone."""
    found = document["metadata"]
    return {"name": found["name"], "namespace": found["namespace"], "labels": found.get("labels") or {}}


def job_with(document: Mapping[str, Any], spec: Mapping[str, Any]) -> RLJob:
    """The stored job, with this spec. Raises `ManifestError`."""
    return parse_job({"apiVersion": API_VERSION, "kind": KIND, "metadata": about(document), "spec": dict(spec)})

"""From the RLJob that the API server stores to what the controller works with: the spec in force, and what is refused. Pure.

While members of a job run, it goes by the presets and defaults that it was started with: a learner that is started again must not
learn with other parameters than before. Fields that may change at any time are taken from the stored object.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import yaml
from pydantic import BaseModel, ValidationError
from rljob.api import ManifestError, RLJob, parse_job, transition_problems
from rljob.api.conditions import ConditionType, Reason
from rljob.api.document import MAX_BYTES, OwnReader
from rljob.api.effective import as_written
from rljob.api.job import API_VERSION, KIND, RLJobSpec
from rljob.api.live import with_value
from rljob.api.mutability import places
from rljob.api.status import RLJobStatus
from rljob.api.status_model import StatusModel

from rljob_operator.core.desired import CHECKPOINT_ANNOTATION, STOP_ANNOTATION, DesiredState, Refusal
from rljob_operator.core.member import Role
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.rendering import is_of_another_release, revision, revision_of_job

S = TypeVar("S", bound=StatusModel)
_AT_ANY_TIME: Final = tuple(place for place in places(RLJobSpec) if place.mutability.when.at_any_time)


def kept_job(document: Mapping[str, Any], text: str) -> RLJob | None:
    """The job that was in force when its ConfigMap was written; None where this release does not take it.

    The preset's values are in it already. They are not merged again: this release's preset may have others.
    """
    try:
        kept = dict(yaml.load(text, Loader=OwnReader)["spec"])
        preset = kept.pop("preset", None)
        job = job_with(document, kept)
    except (ValueError, yaml.YAMLError, LookupError, TypeError):
        return None
    # Which fields its user wrote is in the stored object alone: here every field stands.
    written = {"metadata": about(document), "spec": document["spec"]}
    return as_written(job.model_copy(update={"spec": job.spec.model_copy(update={"preset": preset})}), written)


def with_changes(runs: RLJob, newest: RLJob, *, written: bool = False) -> RLJob:
    """``runs`` with those values of ``newest`` that may change at any time, and its metadata; ``written``: with those alone that
    its user wrote."""
    spec = runs.spec
    for place in _AT_ANY_TIME:
        parent = place.parent_in(newest.spec)
        if parent is not None and not (written and place.name not in parent.model_fields_set):
            spec = with_value(spec, place.steps, getattr(parent, place.name))
    return newest.model_copy(update={"spec": spec})


def about(document: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that the job in force has. The rest is for the API server alone."""
    found = document["metadata"]
    return {"name": found["name"], "namespace": found["namespace"], "labels": found.get("labels") or {}}


def job_with(document: Mapping[str, Any], spec: Mapping[str, Any]) -> RLJob:
    """The stored job, with this spec. Raises `ManifestError`."""
    return parse_job({"apiVersion": API_VERSION, "kind": KIND, "metadata": about(document), "spec": dict(spec)})


MANAGED_BY: Final = "rljob.dev/operator"
"""``spec.managedBy`` of the jobs that are this operator's; others are left alone."""

_OF_ANOTHER_RELEASE: Final = (
    "the job runs with pods of another release of the operator: they go on and are left alone, nothing is started, stopped or "
    "changed; suspend and resume the job"
)
_NOTHING: Final = {"algorithm": {"type": "IMPALA"}, "environment": {"id": "unnamed"}}
"""Stands for the spec of a job whose spec can't be read: it is never run, since its refusal blocks."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """An RLJob as the API server has it.

    Attributes:
        document: the whole object.
        desired: what is wanted of it.
        status: what was written last; a new one where none was, or where it can't be read.
        leaving: it is being deleted: nothing is started or created for it any more.
        stopped: its user wants nothing of it to run, until that is taken back.
        revisions: of the roles' pods, as far as they are known: what `revision` keeps.
    """

    document: Mapping[str, Any]
    desired: DesiredState
    status: RLJobStatus
    leaving: bool
    stopped: bool = False
    revisions: dict[Role, str] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        """Its uid, which every child names."""
        return str(self.document["metadata"]["uid"])

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.document["metadata"]["namespace"], self.document["metadata"]["name"]

    def revision(self, role: Role) -> str:
        """The revision of the role's pods; see `kube.render.rendering`."""
        if role not in self.revisions:
            self.revisions[role] = revision(self.document, role)
        return self.revisions[role]

    def owned(self) -> Owned:
        """What its children are made for."""
        return Owned(self.desired.job, self.uid, written=self.desired.written)


class Interner:
    """Answers each section of a spec with the first one that was equal to it and is still in use; for one thread.

    The spec of a job takes 40 KB as typed sections, most of which are as a preset or a default has them. They are never changed,
    so jobs may share them.
    """

    def __init__(self) -> None:
        self._models: WeakValueDictionary[tuple[Any, ...], BaseModel] = WeakValueDictionary()

    def job(self, job: RLJob) -> RLJob:
        """The job with every section of its spec that another has, too."""
        spec = job.spec
        sections = {
            # What its user wrote of it is part of it: two that are equal may differ in that.
            name: self._models.setdefault(
                (type(section), _written(section), sha256(section.model_dump_json().encode()).digest()), section
            )
            for name in type(spec).model_fields
            if isinstance(section := getattr(spec, name), BaseModel)
        }
        return job.model_copy(update={"spec": spec.model_copy(update=sections)})

    def __len__(self) -> int:
        """How many different sections are kept."""
        return len(self._models)


def _written(section: BaseModel) -> tuple[frozenset[str], tuple[Any, ...]]:
    """Which fields of a section, and of those below, its user wrote."""
    below = (each for name in type(section).model_fields if isinstance(each := getattr(section, name), BaseModel))
    return frozenset(section.model_fields_set), tuple(map(_written, below))


@dataclass(slots=True)
class ReadBefore:
    """What a job's spec was read as last. It stands while nothing that it follows from has changed: reading it takes more than a
    millisecond, each time.

    ``in_force``: the job that was in force last; None where none was. ``made_for``: the digest of what was written of it then.
    """

    follows_from: tuple[Any, ...] = (None, None)
    found: tuple[RLJob, Refusal | None, str] | None = None
    written: str = ""
    interner: Interner = field(default_factory=Interner)
    revisions: dict[Role, str] = field(default_factory=dict)
    in_force: RLJob | None = None
    made_for: str = ""


def is_ours(document: Mapping[str, Any]) -> bool:
    """Whether this operator is responsible for the job."""
    spec = document.get("spec")
    return isinstance(spec, Mapping) and spec.get("managedBy", MANAGED_BY) == MANAGED_BY


def read(document: Mapping[str, Any], status: RLJobStatus | None = None, before: ReadBefore | None = None) -> StoredJob:
    """The stored object as the controller takes it; ``status`` is one that was written since, and is not in ``document`` yet.
    ``before`` is what is kept of the object between two readings.

    A spec that can't be run is refused with every reason; the one in force stays, as ``before`` has it. Where there is
    none, the refusal blocks the job. So does one of a job that runs with pods of another release, until it is suspended.
    The API server has already checked whether the spec may follow on the one before, by the CRD's rules.
    """
    before, known = before or ReadBefore(), status or status_of(document, RLJobStatus)
    metadata, annotations = document["metadata"], document["metadata"].get("annotations") or {}
    job, refusal, written = _in_force(document, known, before)
    requested = str(annotations.get(CHECKPOINT_ANNOTATION, ""))
    desired = DesiredState(
        job, int(metadata.get("generation", 1)), requested, refusal, written, scaled_by_hpa=_is_scaled_by_hpa(metadata)
    )
    leaving, stopped = bool(metadata.get("deletionTimestamp")), STOP_ANNOTATION in annotations
    return StoredJob(document, desired, known, leaving, stopped, before.revisions)


def _is_scaled_by_hpa(metadata: Mapping[str, Any]) -> bool:
    """Whether the last write of the scale subresource was a HorizontalPodAutoscaler's: they run in the controller manager."""
    writers = metadata.get("managedFields") or ()
    return any(each.get("subresource") == "scale" and each["manager"] == "kube-controller-manager" for each in writers)


def _in_force(
    document: Mapping[str, Any], status: RLJobStatus, before: ReadBefore
) -> tuple[RLJob, Refusal | None, str]:
    """(the job to work with, why it is not the newest one, digest of what was written of it)."""
    memory = status.controller
    runs = (memory.started_with, memory.rendering) if memory.active_since is not None else None
    newest = status.observed_generation, _is_refused(status)
    spec, named = document.get("spec"), about(document)
    follows_from = spec, named, memory.started_with, runs, newest
    if before.found is None or before.follows_from != follows_from:
        if not before.written or before.follows_from[0] != spec:
            before.written, before.revisions = revision_of_job(document), {}
        kept = before.in_force
        if kept is not None and kept.metadata.labels != named["labels"]:
            kept = before.in_force = kept.model_copy(
                update={"metadata": kept.metadata.model_copy(update={"labels": named["labels"]})}
            )
        job, refusal = _read_in_force(document, status, before)
        job = job if job is kept else before.interner.job(job)
        if refusal is None:
            before.in_force, before.made_for = job, before.written
        # While a job is refused, what was written last is not what is wanted.
        before.found = job, refusal, before.written if refusal is None else memory.started_with
    before.follows_from = follows_from
    return before.found


def _read_in_force(
    document: Mapping[str, Any], status: RLJobStatus, before: ReadBefore
) -> tuple[RLJob, Refusal | None]:
    """While members run and their user has not changed what roles read when they start, the job that is in force stays."""
    memory = status.controller
    is_newest = status.observed_generation == int(document["metadata"].get("generation", 1)) and not _is_refused(status)
    foreign = is_of_another_release(memory)
    unchanged = memory.started_with == before.written == before.made_for
    runs = before.in_force if unchanged and memory.active_since is not None and not foreign else None
    known = before.found is not None and before.follows_from[0] == document.get("spec")
    if runs is not None and is_newest and known:
        return runs, None
    job, problems = _job(document)
    if foreign and not (job is not None and job.spec.suspend):
        words = "; ".join([_OF_ANOTHER_RELEASE, *problems])
        return job or job_with(document, _NOTHING), Refusal(Reason.RENDERING_UNKNOWN, words)
    if job is not None:
        # Another operator may have noted this generation, and ended before the ConfigMap had it. Its presets may be others.
        changed = job if runs is None else with_changes(runs, job, written=is_newest)
        # The API server does not know what presets say beside what is changed.
        problems = [] if runs is None else [str(problem) for problem in transition_problems(runs, changed)]
        if not problems:
            return changed, None
    if runs is not None and is_newest:
        return runs, None
    words, last_good = "; ".join(problems), before.in_force
    if last_good is not None:
        return last_good, Refusal(Reason.INVALID_SPEC, f"{words}; the last good spec stays in force", blocking=False)
    return job_with(document, _NOTHING), Refusal(Reason.INVALID_SPEC, words)


def _is_refused(status: RLJobStatus) -> bool:
    """Whether the spec of the generation that was seen last is not the one in force."""
    accepted = status.condition(ConditionType.ACCEPTED)
    return accepted is not None and accepted.reason == Reason.INVALID_SPEC


def _job(document: Mapping[str, Any]) -> tuple[RLJob | None, list[str]]:
    size = len(json.dumps(document["spec"]))
    if size > MAX_BYTES:
        return None, [f"spec: has {size:,} characters; allowed: up to {MAX_BYTES:,}; put long texts into a ConfigMap"]
    try:
        return job_with(document, document["spec"]), []
    except ManifestError as error:
        return None, [str(problem) for problem in error.problems]


def status_of(document: Mapping[str, Any], kind: type[S]) -> S:
    """The stored status. The server keeps what it was given, so one that can't be read was written by another client."""
    try:
        return kind.model_validate(status_document(document), by_alias=True, by_name=False)
    except ValidationError:
        return kind()


def status_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """The stored status, which is kept as mappings or as text, as mappings of the caller's own."""
    found = document.get("status") or {}
    return dict(json.loads(found if isinstance(found, str) else json.dumps(found)))

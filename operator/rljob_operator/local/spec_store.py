"""``job.yaml`` of a run folder, in the role of the API server: the stored object, its generation, and which changes are allowed.

It holds the job as written; what presets and defaults add to it is in ``job-effective.yaml``. Users and verbs write it, under
a lock and in one step; the controller reads it, writes ``status.json``, and never writes what the user wants. The generation
counts the specs that verbs have stored.
"""

import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rljob.api import ManifestError, Problem, RLJob, dump_manifest, parse_job, transition_problems
from rljob.api.conditions import Reason
from rljob.api.document import dump_document, parse_document
from rljob.api.rule import STORED
from rljob.api.status import RLJobStatus
from rljob.files import replace
from rljob.sources import to_load, with_files

from rljob_operator.core.desired import CHECKPOINT_ANNOTATION, DesiredState, Refusal
from rljob_operator.local.job_view import read_status, running_members
from rljob_operator.local.run_folder import (
    ACCEPTED_FILE,
    EFFECTIVE_FILE,
    JOB_FILE,
    STATUS_FILE,
    RunFolderProblem,
    telling,
    write_json,
)

Document = dict[str, Any]
WRITE_SECONDS = 1.0
"""Changes of a status that no reader has to act on are written at most this often."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """What is stored: the job if it can be read, else None and every problem in ``refusal``, a line each; and as written."""

    generation: int
    job: RLJob | None
    refusal: str = ""
    document: Document = field(default_factory=dict)


class SpecStore:
    """The stored object of the run in ``run_dir``. Made by both sides, the controller and a verb in another terminal."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._path, self._accepted_path = run_dir / JOB_FILE, run_dir / ACCEPTED_FILE
        self.effective_path = run_dir / EFFECTIVE_FILE
        """The manifest that the roles are started from: the job in force."""
        self._seen: tuple[int, int, int] | None = None
        self._last: StoredJob | None = None

    def create(self, written: Document) -> None:
        """Store a new run's job, as written and found to be valid, as generation 1. Raises RunFolderProblem.

        The number of actors is stored even where it was not written, as an API server does, for those who scale.
        """
        spec = {**written["spec"]}
        spec["actors"] = {"replicas": STORED["actors.replicas"], **(spec.get("actors") or {})}
        document = {**written, "metadata": {**written["metadata"], "generation": 1}, "spec": spec}
        with self._locked():
            self._write(document)

    def read(self) -> StoredJob:
        """What is stored now; cheap where nothing has changed since the last call. Raises RunFolderProblem where there is no file
        any more."""
        with telling(self._path, "read"):
            seen = self._stamp()
        if self._last is None or seen != self._seen:
            self._last = self._look()
            self._seen = seen
        return self._last

    @property
    def edited(self) -> bool:
        """Whether another file is stored than was read last."""
        with suppress(OSError):
            return self._stamp() != self._seen
        return False

    def _stamp(self) -> tuple[int, int, int]:
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def edit(self, change: Callable[[Document], None]) -> int:
        """Let ``change`` alter the stored document and store the result; answers its generation.

        What is stored stays as it was when the result is no valid job, or one that may not follow on the one before. Raises
        ManifestError and RunFolderProblem.
        """
        with self._locked():
            before = self._document()
            after: Document = json.loads(json.dumps(before))  # without shared parts, so a change is one change
            change(after)
            if after == before:
                return _generation(before)
            accepted = self.accepted()
            problems = self.problems(accepted if accepted is not None else self._job(before), self._job(after))
            if problems:
                raise ManifestError(problems)
            if after.get("spec") != before.get("spec"):
                after["metadata"]["generation"] = _generation(before) + 1
            self._write(after)
            return _generation(after)

    def accept(self, job: RLJob) -> None:
        """Note the spec in force: roles are started from it, and it stays in force while a later edit is refused.

        As written too: whether a later one may follow depends on that, as a default may follow a change of other fields.
        """
        for path, text in (
            (self.effective_path, dump_manifest(job)),
            (self._accepted_path, dump_document(as_written(job))),
        ):
            with telling(path):
                replace(path, text, durable=True)

    def accepted(self) -> RLJob | None:
        """The spec in force before this controller, or None where there is none yet."""
        try:
            return parse_job(parse_document(self._accepted_path.read_bytes(), str(self._accepted_path)))
        except (OSError, ManifestError):
            return None

    def problems(self, in_force: RLJob, new: RLJob) -> list[Problem]:
        """Why ``new`` may not follow on the spec in force. A run whose processes have all ended counts as suspended."""
        if not running_members(self._run_dir):
            in_force = in_force.model_copy(update={"spec": in_force.spec.model_copy(update={"suspend": True})})
        return transition_problems(in_force, new)

    def _look(self) -> StoredJob:
        try:
            document = self._document()
        except ManifestError as error:
            return StoredJob(self._last.generation if self._last else 0, None, str(error))
        try:
            return StoredJob(_generation(document), self._job(document), document=document)
        except ManifestError as error:
            return StoredJob(_generation(document), None, str(error))

    def _job(self, document: Document) -> RLJob:
        """The job that is stored; files of its user's that are gone are the run's copies of them."""
        return parse_job(with_files(document, partial(to_load, run_dir=self._run_dir)))

    def _document(self) -> Document:
        with telling(self._path, "read"):
            return parse_document(self._path.read_bytes(), str(self._path))

    def _write(self, document: Document) -> None:
        text = dump_document(document)
        parse_document(text.encode(), JOB_FILE)  # it may be too large to be read
        with telling(self._path, then="; what was stored before stays"):
            replace(self._path, text, durable=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with telling(self._run_dir):
            self._run_dir.mkdir(exist_ok=True)
            file = os.open(self._run_dir / f".{JOB_FILE}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)


def as_written(job: RLJob) -> Document:
    """The job's manifest: what its preset and defaults add is not in it."""
    return job.model_dump(mode="json", by_alias=True, exclude_unset=True)


def replace_spec(written: Document) -> Callable[[Document], None]:
    """An edit that stores another job's spec, labels and annotations, as written there; the name stays."""

    def change(document: Document) -> None:
        document["spec"] = written["spec"]
        for part in ("labels", "annotations"):
            document["metadata"].pop(part, None)
            if part in written["metadata"]:
                document["metadata"][part] = written["metadata"][part]

    return change


def _generation(document: Document) -> int:
    metadata = document.get("metadata")
    value = metadata.get("generation") if isinstance(metadata, dict) else None
    return value if isinstance(value, int) and value > 0 else 1


class StoredRun:
    """Takes over each stored spec that can be run; one that can't is refused with the reason, and the one before stays.

    ``status`` is what an earlier controller left, or a new one. Raises RunFolderProblem where no spec can be run at all.
    """

    def __init__(self, run_dir: Path) -> None:
        self.spec = SpecStore(run_dir)
        self._status_path, self._written, self._due = run_dir / STATUS_FILE, RLJobStatus(), 0.0
        self.status, unread = read_status(run_dir)
        self.notes = (f"{unread}; the controller starts with a new one",) if unread else ()
        self.problem = ""
        """Why the newest status is not on the disk; empty where it is."""
        self._job = self.spec.accepted()
        self._taken: object = None
        self._desired: DesiredState | None = None
        self.desired()

    def desired(self) -> DesiredState:
        """The spec in force, taken over from what is stored where that has changed."""
        try:
            stored = self.spec.read()
        except RunFolderProblem as problem:
            if self._desired is None:
                raise
            return dataclasses.replace(self._desired, refusal=_refusal([str(problem)]))
        if self._desired is None or stored is not self._taken:
            self._taken = stored
            problems = stored.refusal.splitlines()
            if stored.job is not None and self._job is not None:
                problems = [str(problem) for problem in self.spec.problems(self._job, stored.job)]
            if stored.job is not None and not problems:
                if self._job is None or as_written(stored.job) != as_written(self._job):
                    self.spec.accept(stored.job)
                self._job = stored.job
            if self._job is None:
                raise RunFolderProblem(stored.refusal)
            refusal = _refusal(problems)
            requested_at = (stored.job or self._job).metadata.annotations.get(CHECKPOINT_ANNOTATION, "")
            self._desired = DesiredState(self._job, stored.generation, requested_at, refusal)
        return self._desired

    def write_status(self, status: RLJobStatus, *, at_once: bool) -> None:
        """Write a status that has changed, in one step: ``at_once``, or with the next one that is due. A disk that doesn't take
        it is told in ``problem`` and tried again; training does not depend on it."""
        now = time.monotonic()
        if status == self._written or not (at_once or now >= self._due):
            return
        self._due = now + WRITE_SECONDS
        try:
            write_json(self._status_path, status.document())
        except OSError as error:
            self.problem = f"{self._status_path} can't be written: {error.strerror}"
        else:
            self._written, self.problem = status, ""


def _refusal(problems: list[str]) -> Refusal | None:
    if not problems:
        return None
    return Refusal(Reason.INVALID_SPEC, f"{'; '.join(problems)}; the last good spec stays in force", blocking=False)

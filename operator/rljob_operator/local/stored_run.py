"""The stored object of a local run for its controller: ``job.yaml`` to read, ``status.json`` to write."""

from dataclasses import replace
from pathlib import Path

from rljob.api.conditions import Reason
from rljob.api.status import RLJobStatus

from rljob_operator.core.desired import CHECKPOINT_ANNOTATION, DesiredState, Refusal
from rljob_operator.local.job_view import StatusFile
from rljob_operator.local.run_folder import RunFolderProblem
from rljob_operator.local.spec_store import SpecStore, as_written


class StoredRun:
    """Takes over each stored spec that can be run; one that can't is refused with the reason, and the one before stays.

    ``status`` is what an earlier controller left, or a new one. Raises RunFolderProblem where no spec can be run at all.
    """

    def __init__(self, run_dir: Path) -> None:
        self.spec = SpecStore(run_dir)
        self._file = StatusFile(run_dir)
        self.status = self._file.load() or RLJobStatus()
        self.notes = (f"{self._file.problem}; the controller starts with a new one",) if self._file.problem else ()
        self._job = self.spec.accepted()
        self._taken: object = None
        self._desired: DesiredState | None = None
        self._count_what_was_edited_meanwhile()
        self.desired()

    @property
    def problem(self) -> str:
        """Why the newest status is not on the disk; empty where it is."""
        return self._file.problem

    def desired(self) -> DesiredState:
        """The spec in force, taken over from what is stored where that has changed."""
        try:
            stored = self.spec.read()
        except RunFolderProblem as problem:
            if self._desired is None:
                raise
            return replace(self._desired, refusal=_refusal([str(problem)]))
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

    def _count_what_was_edited_meanwhile(self) -> None:
        """An edit without a new generation while no controller ran is told from the spec in force."""
        stored, known = self.spec.read(), self.status.observed_generation
        changed = stored.job is None or (self._job is not None and stored.job.spec != self._job.spec)
        if changed and stored.refusal == "" and stored.generation <= known:
            self.spec.count_beyond(known)

    def write_status(self, status: RLJobStatus, *, at_once: bool) -> None:
        """Write ``status.json``; a disk that doesn't take it shows in ``problem``."""
        self._file.write(status, at_once=at_once)


def _refusal(problems: list[str]) -> Refusal | None:
    if not problems:
        return None
    return Refusal(Reason.INVALID_SPEC, f"{'; '.join(problems)}; the last good spec stays in force", blocking=False)

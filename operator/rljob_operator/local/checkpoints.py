"""Whether the newest checkpoint is valid: in a run folder it is verified here, in a bucket the learner does so and reports it."""

from pathlib import Path

from rljob.api import RLJob
from rljob.api.learner_status import CheckpointStatement, LearnerStatus
from rljob.checkpoints.files import VerifiedFiles, stored, verify
from rljob.checkpoints.location import bucket_of
from rljob.checkpoints.names import MANIFEST, TENSORS, CheckpointProblem, StorageProblem

from rljob_operator.core.observed import CheckpointFacts, CheckpointState, checkpoint_facts
from rljob_operator.local.run_folder import read_json

Fingerprint = tuple[tuple[str, int, int], ...]


def checkpoints(job: RLJob, run_dir: Path) -> "CheckpointWatch | CheckpointWords":
    """How the newest checkpoint of a job is known."""
    if bucket_of(job) is not None:
        return CheckpointWords(last_words_path(run_dir))
    return CheckpointWatch(run_dir / "checkpoints")


def last_words_path(run_dir: Path) -> Path:
    """Where the learner leaves its last words. It is removed before a learner is started."""
    return run_dir / "roles" / "learner.words.json"


class CheckpointWords:
    """What the learner says of its checkpoints: at its end in ``last_words``, before that in its status document.

    No request goes to the bucket from here: it would be one a second, and wait for a server that is gone.
    """

    def __init__(self, last_words: Path) -> None:
        self._last_words = last_words

    def look(self, attempt: CheckpointStatement | None = None) -> CheckpointFacts:
        """The newest checkpoint now. ``attempt`` is what the learner reported last while it was up."""
        return checkpoint_facts(LearnerStatus.lenient(read_json(self._last_words)).checkpoint or attempt)


class CheckpointWatch:
    """Checks ``directory`` regularly, but reads a checkpoint only when its files have changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._known: dict[Path, tuple[Fingerprint, VerifiedFiles | str]] = {}

    def look(self, attempt: CheckpointStatement | None = None) -> CheckpointFacts:
        """The newest checkpoint now. ``attempt`` is what the learner says of its newest attempt to write one."""
        try:
            verdicts = self._verdicts()
        except OSError as error:
            return CheckpointFacts(CheckpointState.STORAGE_ERROR, message=f"{self._directory}: {error.strerror}")
        except StorageProblem as problem:
            return CheckpointFacts(CheckpointState.STORAGE_ERROR, message=str(problem))
        newest = next((verdict for verdict in verdicts if isinstance(verdict, VerifiedFiles)), None)
        state, message = CheckpointState.VERIFIED if newest else CheckpointState.MISSING, ""
        if verdicts and isinstance(verdicts[0], str):
            state, message = CheckpointState.CORRUPT, verdicts[0]
        elif attempt is not None and attempt.state == "Failed":
            state, message = CheckpointState.STORAGE_ERROR, attempt.message
        if newest is None:
            return CheckpointFacts(state, message=message)
        return CheckpointFacts(
            state=state,
            step=newest.updates,
            time_seconds=_moment(newest, "written_unix"),
            uri=newest.path.as_uri(),
            digest=f"sha256:{newest.digest}",
            message=message,
            requested_seconds=_moment(newest, "requested_unix"),
        )

    def _verdicts(self) -> list[VerifiedFiles | str]:
        """The newest checkpoint, and those before it down to the first that verifies: what each is, or what is wrong with it."""
        verdicts: list[VerifiedFiles | str] = []
        known: dict[Path, tuple[Fingerprint, VerifiedFiles | str]] = {}
        for path in (self._directory / each.name for each in stored(self._directory)):
            before = _fingerprint(path)
            cached = self._known.get(path)
            verdict = cached[1] if cached is not None and cached[0] == before else _verdict(path)
            if _fingerprint(path) != before:
                continue  # the learner replaced or removed it while it was read; the next check finds what became of it
            known[path] = (before, verdict)
            verdicts.append(verdict)
            if isinstance(verdict, VerifiedFiles):
                break
        self._known = known
        return verdicts


def _verdict(path: Path) -> VerifiedFiles | str:
    try:
        return verify(path)
    except CheckpointProblem as problem:
        return str(problem)


def _fingerprint(path: Path) -> Fingerprint:
    seen = []
    for name in (MANIFEST, TENSORS):
        try:
            stat = (path / name).stat()
        except OSError:
            continue
        seen.append((name, stat.st_mtime_ns, stat.st_size))
    return tuple(seen)


def _moment(files: VerifiedFiles, name: str) -> float:
    value = files.manifest.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0

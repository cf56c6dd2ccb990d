"""What the checkpoints of a run folder are worth: the newest one, read again and compared with its digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rljob.checkpoints.files import MANIFEST, TENSORS, CheckpointProblem, VerifiedFiles, stored, verify

from rljob_operator.core.observed import CheckpointFacts, CheckpointState

Fingerprint = tuple[tuple[str, int, int], ...]


class CheckpointWatch:
    """Looks at ``directory`` again and again, but reads a checkpoint only when its files have changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._known: dict[Path, tuple[Fingerprint, VerifiedFiles | str]] = {}

    def look(self, attempt: Mapping[str, Any] | None = None) -> CheckpointFacts:
        """The newest checkpoint now. ``attempt`` is what the learner says of its newest attempt to write one."""
        try:
            verdicts = self._verdicts()
        except OSError as error:
            return CheckpointFacts(CheckpointState.STORAGE_ERROR, message=f"{self._directory}: {error.strerror}")
        newest = next((verdict for verdict in verdicts if isinstance(verdict, VerifiedFiles)), None)
        state, message = CheckpointState.VERIFIED if newest else CheckpointState.MISSING, ""
        if verdicts and isinstance(verdicts[0], str):
            state, message = CheckpointState.CORRUPT, verdicts[0]
        elif attempt is not None and attempt.get("state") == "Failed":
            state, message = CheckpointState.STORAGE_ERROR, str(attempt.get("message", ""))
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
        """Of the newest checkpoint, and of those before it down to the first that verifies: what it is, or what is wrong."""
        verdicts: list[VerifiedFiles | str] = []
        known: dict[Path, tuple[Fingerprint, VerifiedFiles | str]] = {}
        for path in stored(self._directory):
            before = _fingerprint(path)
            cached = self._known.get(path)
            verdict = cached[1] if cached is not None and cached[0] == before else _verdict(path)
            if _fingerprint(path) != before:
                continue  # the learner replaced or removed it while it was read; the next look sees what became of it
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

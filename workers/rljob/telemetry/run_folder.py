"""Reads a run folder, whole or in part, into one value. Files that are missing or damaged are named, never fatal."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rljob.api import ManifestError
from rljob.api.document import parse_document
from rljob.telemetry.recorder import CHECKPOINT, EVALUATION, LEARNER, MACHINE, METRICS_FILE, iter_records, thinned

MANIFEST_FILE: Final = "job.yaml"
EFFECTIVE_FILE: Final = "job-effective.yaml"
OUTCOME_FILE: Final = "outcome.json"
STATUS_FILE: Final = "status.json"
_LOG_TAIL_BYTES = 4096
_LOG_TAIL_LINES = 12


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint as it lies on the disk: its name, all its bytes, and when it was finished (seconds since 1970)."""

    name: str
    size_bytes: int
    modified_unix: float


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Everything a report needs.

    Attributes:
        job: the job in force, presets and defaults filled in; as written, where nothing was put in force.
        written_text: the manifest as its user has it. in_force_text: that of the job in force.
        status: the job's status as its controller wrote it last.
        roles: every member that was started: its name, and its last status document where it left one.
        points: records of figures, oldest first. evaluations, checkpoints: the records of those kinds.
        facts: the last ``machine`` and ``learner`` records, merged.
        stored: checkpoints on the disk, oldest first.
        profiles: the time lines that `rljob profile` left, as paths in the run folder.
        problems: what is missing or cannot be read, a sentence each.
    """

    path: Path
    name: str
    job: Mapping[str, Any] = field(default_factory=dict)
    written_text: str = ""
    in_force_text: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    points: tuple[Mapping[str, Any], ...] = ()
    evaluations: tuple[Mapping[str, Any], ...] = ()
    checkpoints: tuple[Mapping[str, Any], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    stored: tuple[StoredCheckpoint, ...] = ()
    roles: tuple[Mapping[str, Any], ...] = ()
    log_tails: Mapping[str, str] = field(default_factory=dict)
    profiles: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_run_folder(path: Path) -> RunFolder:
    """Reads what there is under ``path``.

    Raises:
        NotADirectoryError: ``path`` is no folder.
    """
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a run folder: there is no such directory")
    problems: list[str] = []
    in_force = _text(path / EFFECTIVE_FILE, "", [])
    written = _text(path / MANIFEST_FILE, "the job's configuration", [] if in_force else problems)
    as_written = _manifest(written, MANIFEST_FILE, problems)
    job = _manifest(in_force, EFFECTIVE_FILE, problems) or as_written
    outcome = _json(path / OUTCOME_FILE, "how the run ended; it may still be going on", problems)
    records: list[dict[str, Any]] = []
    try:
        records = thinned(iter_records(path / METRICS_FILE))
    except OSError:
        problems.append(f"{METRICS_FILE} is missing: there are no figures over time.")
    else:
        if not records:
            problems.append(f"{METRICS_FILE} holds no record: nothing was measured yet.")
    metadata = job.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return RunFolder(
        path=path,
        name=str(name or path.resolve().name),
        job=job,
        written_text=written,
        in_force_text=in_force,
        outcome=outcome,
        status=_json(path / STATUS_FILE, "", []),
        points=tuple(record for record in records if "kind" not in record),
        evaluations=tuple(record for record in records if record.get("kind") == EVALUATION),
        checkpoints=tuple(record for record in records if record.get("kind") == CHECKPOINT),
        facts={
            name: value
            for record in records
            if record.get("kind") in (MACHINE, LEARNER)
            for name, value in record.items()
        },
        stored=_stored(path / "checkpoints"),
        roles=_roles(path / "roles"),
        log_tails=_log_tails(path / "logs"),
        profiles=tuple(str(file.relative_to(path)) for file in sorted(path.glob("profiles/*/timeline.json"))),
        problems=tuple(problems),
    )


def _text(path: Path, what: str, problems: list[str]) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        problems.append(f"{path.name} is missing: it would tell {what}.")
        return ""


def _manifest(text: str, name: str, problems: list[str]) -> Mapping[str, Any]:
    try:
        return parse_document(text.encode(), name) if text else {}
    except ManifestError as error:
        problems.append(f"{error.problems[0]}; the file is shown as it is.")
    return {}


def _json(path: Path, what: str, problems: list[str]) -> Mapping[str, Any]:
    document, text = None, _text(path, what, problems)
    with suppress(ValueError):
        document = json.loads(text or "{}")
    if not isinstance(document, Mapping):
        problems.append(f"{path.name} is not a JSON object.")
    return document if isinstance(document, Mapping) else {}


def _roles(folder: Path) -> tuple[Mapping[str, Any], ...]:
    """Every member that was ever started, by name: ``name`` and, where it left in good order, its last status document."""
    names = sorted(path.name.removesuffix(".process.json") for path in folder.glob("*.process.json"))
    return tuple({**_json(folder / f"{name}.final.json", "", []), "name": name} for name in names)


def _stored(folder: Path) -> tuple[StoredCheckpoint, ...]:
    found = []
    for entry in sorted(folder.glob("[!.]*/")):
        with suppress(OSError):  # removed by the running job while we looked
            size = sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
            found.append(StoredCheckpoint(entry.name, size, entry.stat().st_mtime))
    return tuple(sorted(found, key=lambda checkpoint: checkpoint.modified_unix))


def _log_tails(folder: Path) -> dict[str, str]:
    tails = {}
    for path in sorted(folder.glob("*.log")):
        with suppress(OSError), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
            tails[path.name] = "\n".join(lines[-_LOG_TAIL_LINES:])
    return tails

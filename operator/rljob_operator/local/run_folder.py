"""The folder of one run: its name, the manifest in it, and how the run ended."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rljob.api import RLJob, dump_manifest
from rljob.api.status import RLJobStatus
from rljob.cli.errors import Unusable


class RunFolderProblem(Unusable):
    """The run folder can't be used as asked; the message says why and what would work."""


def default_run_dir(job_name: str) -> Path:
    """``runs/<name>-<local time>``, made distinct with a number where two runs start in one second."""
    base = Path("runs") / f"{job_name}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = base, 2
    while folder.exists():
        folder = base.with_name(f"{base.name}-{number}")
        number += 1
    return folder


def prepare(run_dir: Path, job: RLJob, *, resume: bool) -> Path:
    """Make ``run_dir`` ready and write the resolved manifest into it; answers the manifest's path.

    Raises RunFolderProblem where a fresh run meets files of an older one, or a resumed run finds nothing to resume.
    """
    if resume:
        if not (run_dir / "job.yaml").is_file():
            raise RunFolderProblem(
                f"{run_dir}: nothing to resume here (no job.yaml); leave out --resume to start a run"
            )
    elif run_dir.exists() and any(run_dir.iterdir()):
        raise RunFolderProblem(
            f"{run_dir}: not empty; add --resume to go on with the run in it, or name another --run-dir"
        )
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        manifest = run_dir / "job.yaml"
        manifest.write_text(dump_manifest(job))
    except OSError as error:
        raise RunFolderProblem(f"{run_dir}: can't be written: {error.strerror}; name another --run-dir") from error
    return manifest


def read_status(run_dir: Path) -> RLJobStatus:
    """The status to go on with: the one in ``run_dir``, or a new one where there is none, or where that job has ended: to
    resume a finished job is its user's wish to have it tried again."""
    try:
        status = RLJobStatus.model_validate_json((run_dir / "status.json").read_bytes())
    except (OSError, ValueError):
        return RLJobStatus()
    return RLJobStatus() if status.controller.outcome is not None else status


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace ``path`` by ``document`` in one step, so that a reader sees the old or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(document, indent=2) + "\n")
    os.replace(temporary, path)

"""The job's token: who has it may ask the learner for a checkpoint, wherever the learner listens."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def job_token_file(run_dir: Path) -> Path | None:
    """The file with the token of the run in ``run_dir``, made if there is none; None where the disk takes none.

    Without a token the learner takes requests on loopback only.
    """
    path = run_dir.resolve() / "roles" / "request-token"
    if read_token(path):
        return path
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        return None
    return path


def read_token(path: Path | None) -> str:
    """The token in the file; empty where there is none."""
    if path is None:
        return ""
    try:
        return path.read_text().strip()
    except OSError:
        return ""

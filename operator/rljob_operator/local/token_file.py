"""The job's token: who has it may ask the learner for a checkpoint, wherever the learner listens."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def job_token_file(run_dir: Path) -> Path | None:
    """The file with the token of the run in ``run_dir``, made if there is none; None where the disk takes none.

    Without a token the learner takes requests on loopback only.
    """
    path = run_dir.resolve() / "roles" / "request-token"
    if not read_token(path):
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        except OSError:
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

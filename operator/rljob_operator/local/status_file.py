"""``status.json``: the job's status for its readers, and the controller's own memory, which outlives its process."""

from __future__ import annotations

import json
import time
from pathlib import Path

from pydantic import ValidationError
from rljob.api.status import RLJobStatus

from rljob_operator.local.run_folder import STATUS_FILE, write_json

WRITE_SECONDS = 1.0
"""Changes that no reader has to act on are written at most this often."""


class StatusFile:
    """Holds exactly the CRD's ``status``, replaced in one step. ``problem`` says why the newest one is not on the disk."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / STATUS_FILE
        self._written: RLJobStatus | None = None
        self._next = 0.0
        self.problem = ""

    def load(self) -> RLJobStatus | None:
        """What the controller before wrote; None where there is no file, or one that can't be read."""
        self.problem = ""
        try:
            return RLJobStatus.model_validate(json.loads(self._path.read_bytes()), by_alias=True, by_name=False)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, ValidationError) as error:
            self.problem = f"{self._path} can't be read ({type(error).__name__})"
            return None

    def write(self, status: RLJobStatus, *, at_once: bool) -> None:
        """Write a status that has changed: ``at_once``, or with the next one that is due.

        A disk that doesn't take it is told in ``problem`` and tried again; training does not depend on it.
        """
        now = time.monotonic()
        if status == self._written or not (at_once or now >= self._next):
            return
        self._next = now + WRITE_SECONDS
        try:
            write_json(self._path, status.document())
        except OSError as error:
            self.problem = f"{self._path} can't be written: {error.strerror}"
            return
        self._written, self.problem = status, ""

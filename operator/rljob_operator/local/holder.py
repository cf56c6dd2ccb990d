"""Which controller has a run: one of this machine and namespace, one elsewhere that shares the disk, or none."""

import contextlib
import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rljob_operator.local.identity import ProcessIdentity

LOCK_FILE: Final = "controller.lock"
"""Locked by the controller of the run folder that it is in (`rljob_operator.local.lock`), and names it."""
_NAMED_SECONDS: Final = 0.5
"""In which whatever takes a lock writes its name."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The controller that has a run: its process, None where it has not written its name yet, and since when (Unix seconds)."""

    process: ProcessIdentity | None
    since: float

    @property
    def here(self) -> bool:
        """Whether it is a living process that a signal from here reaches; else it is elsewhere, and only its files are here."""
        return self.process is not None and self.process.alive

    def __str__(self) -> str:
        if self.process is None:
            return "a controller that is about to begin"
        elsewhere = "" if self.process.of_here else f" of another machine or container, {self.process.host}"
        return f"pid {self.process.pid}{elsewhere}"


def holder(run_dir: Path) -> Holder | None:
    """The controller that has ``run_dir`` now, here or elsewhere; None where none runs. This alone tells."""
    deadline = time.monotonic() + _NAMED_SECONDS
    # Without such a file none has begun; nor can it where the disk has no locks.
    with contextlib.suppress(OSError), (run_dir / LOCK_FILE).open() as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            named = json.loads(os.pread(file.fileno(), 4096, 0) or b"{}")
            process = ProcessIdentity(**named["process"]) if named.get("process") else None
            # Of here and gone, it is the name of the one before.
            if (process is not None and (process.alive or not process.of_here)) or time.monotonic() > deadline:
                return Holder(process, named.get("since_unix", 0.0))
            time.sleep(0.02)
    return None

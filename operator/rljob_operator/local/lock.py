"""One controller a run folder: a lock that ends with the process that holds it, however that ends."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from types import TracebackType

from rljob_operator.local.run_folder import RunFolderProblem

LOCK_FILE = "controller.lock"


class ControllerLock:
    """Held by the controller of ``run_dir`` from its start to its end.

    The kernel gives the lock back when the holder dies, also by kill -9, so there are no stale locks. The file says who
    holds it; processes that the controller starts do not inherit it.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / LOCK_FILE
        self._file: int | None = None
        self._run_dir = run_dir

    def __enter__(self) -> ControllerLock:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunFolderProblem(
                f"{self._run_dir}: can't be written: {error.strerror}; name another --run-dir"
            ) from error
        if not _taken(file):
            os.close(file)
            pid = owner(self._run_dir)
            raise RunFolderProblem(
                f"{self._run_dir}: another controller (pid {pid}) has this run; watch it with `rljob top {self._run_dir}`, "
                f"or end it with `rljob stop {self._run_dir}` first"
            ) from None
        document = json.dumps({"pid": os.getpid(), "since_unix": time.time()}) + "\n"
        os.ftruncate(file, 0)
        os.pwrite(file, document.encode(), 0)
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _taken(file: int) -> bool:
    """Try for the lock, and again for a moment: a verb that only asks who the owner is holds it for microseconds."""
    for _ in range(10):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def owner(run_dir: Path) -> int | None:
    """Process id of the controller that has ``run_dir`` now, or None where none runs."""
    try:
        file = os.open(run_dir / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            return int(json.loads(os.pread(file, 4096, 0))["pid"])
        except (ValueError, KeyError, TypeError):
            return 0  # it has the lock and is about to write its name
    finally:
        os.close(file)
    return None

"""One controller a run folder: a lock that ends with the process that holds it, however that ends."""

import contextlib
import fcntl
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from rljob_operator.local.run_folder import LOCK_FILE, ProcessIdentity, RunFolderProblem, holder


class ControllerLock:
    """Held by the controller of ``run_dir`` from its start to its end.

    The kernel gives the lock back when the holder dies, also by kill -9, so there are no stale locks. The file says who
    holds it; processes that the controller starts do not inherit it.

    ``for_another``: it is taken for a controller that is about to be started with ``file`` as its standard input, and that keeps
    it from then on. So there is no moment in which the run has no controller.
    """

    def __init__(self, run_dir: Path, *, for_another: bool = False) -> None:
        self._file: int | None = None
        self._run_dir = run_dir
        self._for_another = for_another

    def __enter__(self) -> Self:
        try:
            file = os.open(self._run_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunFolderProblem(
                f"{self._run_dir}: can't be written: {error.strerror}; name another --run-dir"
            ) from error
        with contextlib.suppress(OSError), open(os.devnull) as nothing:  # there may be no standard input
            if os.path.sameopenfile(file, 0):  # it was taken for this process, and is for none that it starts
                os.dup2(0, file, inheritable=False)
                os.dup2(nothing.fileno(), 0)
        if not _taken(file):
            os.close(file)
            raise RunFolderProblem(
                f"{self._run_dir}: another controller ({holder(self._run_dir)}) has this run; "
                f"end it with `rljob stop {self._run_dir}` first"
            )
        self._file = file
        self.name(None if self._for_another else os.getpid())
        return self

    @property
    def file(self) -> int:
        """The file descriptor that the lock is held by."""
        assert self._file is not None, "within `with`"
        return self._file

    def name(self, pid: int | None) -> None:
        """Write into the file who has the run: the process ``pid`` of here, or None for one that is about to be known."""
        process = ProcessIdentity.of(pid) if pid is not None else None
        document = json.dumps({"process": process and asdict(process), "since_unix": time.time()}) + "\n"
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, document.encode(), 0)

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

"""How the processes of a run are started.

Its roles are forked by a process that has loaded everything already. Its controller is in a session of its own, so that the run
goes on where the program that started it ends.
"""

import contextlib
import errno
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, Final, Protocol

from rljob.child import Child
from rljob.threads import start_contained

from rljob_operator.core.member import last_line
from rljob_operator.local.run_folder import CONTROLLER_LOG, JOB_FILE, ControllerLock

_ANSWER_SECONDS: Final = 15.0
_LEAVE_SECONDS: Final = 2.0
_MOST_WRITTEN: Final = 1 << 16


class Launched(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its process id, which no other process gets before `wait` was asked (or its parent has died)."""

    def wait(self) -> int | None:
        """How it ended, -n for signal n; None where its parent can't tell any more. Waits for its end."""


Launch = Callable[[Sequence[str], Mapping[str, str], Mapping[str, str], int, int], Launched | None]
"""Starts (words of a role, environment, variables that libraries read while they are loaded, descriptor of its log, niceness), in
a session of its own, and returns at once: None while libraries are being loaded, which takes minutes from a cold disk; then it is
asked again. Raises OSError, with the reason in the log, too."""


@dataclass(frozen=True, slots=True)
class _Forked:
    server: "ForkServer"
    pid: int

    def wait(self) -> int | None:
        try:
            return self.server.ask({"wait": self.pid}).get("exit_code")
        except ServerGone:
            return None


class ServerGone(Exception):
    """The fork server has ended, or does not answer; the message is what it wrote, a traceback where it could not be loaded."""


class ForkServer:
    """A running `rljob_operator.local.fork_server`. It loads what roles need while its creator goes on. Raises OSError."""

    def __init__(self) -> None:
        self._written = tempfile.TemporaryFile()  # noqa: SIM115 (it is the server's, too)
        self._process = Child(
            "rljob_operator.local.fork_server",
            talks=True,
            orphaned=None,
            stdout=self._written,
            stderr=self._written,
            # Without a pool of threads of its own, which NumPy's linear algebra would start while it is loaded.
            variables={"PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether it has loaded everything. Returns at once. Raises ServerGone where it has ended meanwhile."""
        self._ready = self._ready or self._receive(0.0) is not None
        return self._ready

    def fork(self, words: Sequence[str], log: int, **how: Any) -> Launched:
        """Start the role that ``words`` describe from a server that is ready, ``how`` as a `Launch` says. Raises ServerGone, and
        OSError where the machine is full."""
        answer = self.ask({"words": list(words), **how}, log)
        if "pid" not in answer:
            raise OSError(0, str(answer.get("error")))
        return _Forked(self, answer["pid"])

    def close(self) -> None:
        """Have the server end, and with it whatever it has started and still runs."""
        self._process.leave()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it goes on until all have left
            self._process.wait(_LEAVE_SECONDS)

    def ask(self, message: Mapping[str, Any], log: int | None = None) -> dict[str, Any]:
        """Its answer to ``message``, which is about a process whose log is ``log``. Raises ServerGone."""
        link = self._process.link
        try:
            link.send(message)
            if log is not None:
                send_handle(link, log, 0)
        except OSError:
            raise self._gone() from None
        answer = self._receive(_ANSWER_SECONDS)
        if answer is None:
            # It might still do what was asked, and a late answer would be taken for that to another request.
            self._process.kill()
            raise self._gone()
        return answer

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        try:
            return self._process.link.recv() if self._process.link.poll(seconds) else None
        except (EOFError, OSError):
            raise self._gone() from None

    def _gone(self) -> ServerGone:
        return ServerGone(os.pread(self._written.fileno(), _MOST_WRITTEN, 0).decode(errors="replace"))


class Launcher:
    """Starts the roles of one run as forks of one fork server; where that was killed or does not answer, of another one. Roles of
    a server that was killed go on, and how they end is not known."""

    def __init__(self) -> None:
        self._server: ForkServer | None = None
        self._lost = 0

    def prepare(self) -> None:
        """Have a server load what roles need, to be ready when the first is started. Raises OSError where the machine is full."""
        self._server = self._server or ForkServer()

    def launch(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        variables: Mapping[str, str],
        log: int,
        niceness: int,
    ) -> Launched | None:
        """A `Launch`."""
        self.prepare()
        server, loaded = self._server, False
        assert server is not None
        try:
            loaded = server.ready
            if not loaded:
                return None
            launched = server.fork(
                words, log, environment=dict(environment), variables=dict(variables), niceness=niceness
            )
        except ServerGone as gone:
            self._server, self._lost = None, self._lost + 1
            if loaded and self._lost == 1:  # it was killed; the next one is asked from now on
                return None
            os.write(log, str(gone).encode())
            why = last_line(str(gone))
            raise OSError(errno.EAGAIN, f"the process that starts roles has ended{why and f': {why}'}") from None
        self._lost = 0
        return launched

    def close(self) -> None:
        """End the server, and whatever it has started and still runs."""
        if self._server is not None:
            self._server.close()
            self._server = None


def start_controller(run_dir: Path, manifest: str = JOB_FILE, options: Sequence[str] = ()) -> int:
    """Start `rljob run --resume` with ``options`` on what is stored in ``run_dir`` (a whole path), a run or, by its ``manifest``,
    an experiment; answers its pid at once.

    It has the run's lock from before it exists, so that a look at the run shows that it has a controller; a SIGTERM that
    comes while it loads is kept for it. What this program can import, it can. What it prints is in ``logs/controller.log``.
    Raises RunFolderProblem where the run has a controller, and OSError where the machine is full.
    """
    words = ["run", str(run_dir / manifest), "--run-dir", str(run_dir), "--resume", *options]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with ControllerLock(run_dir, for_another=True) as lock, (run_dir / CONTROLLER_LOG).open("ab") as log:
            process = Child(
                "rljob_operator.cli",
                words,
                title=f"rljob run {run_dir}",
                orphaned=None,
                stdin=lock.file,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            lock.name(process.pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    start_contained(f"rljob-run-{process.pid}", process.wait)  # so that no zombie is left of it
    return process.pid

"""One supervised process of a local run: start it, see how it is, ask it to leave, and make it leave."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rljob_operator.model import Member, Phase, Role

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class RoleProcess:
    """A named role as a child process.

    Its standard output and error go to ``log``; ``announce`` is the file in which it tells where its telemetry is. The
    child gets a session of its own, so that Ctrl-C reaches the controller alone, and SIGTERM when the controller dies.
    """

    def __init__(self, name: str, role: Role, command: Sequence[str], *, log: Path, announce: Path) -> None:
        self.name = name
        self.role = role
        self._command = list(command)
        self._log = log
        self._announce = announce
        self._process: subprocess.Popen[bytes] | None = None
        self._phase = Phase.ABSENT
        self._since = 0.0
        self._kill_at: float | None = None
        self._ready_since: float | None = None
        self._incarnation = ""
        self._asked = False
        self._exit_code: int | None = None
        self._last_words = ""
        self._log_offset = 0

    @property
    def pid(self) -> int | None:
        """Process id of the running process, or None."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the process; nothing happens where it runs already."""
        if self._process is not None:
            return
        self._announce.unlink(missing_ok=True)
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        if self.role is Role.ACTOR:
            environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with self._log.open("ab") as log:
            self._log_offset = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._incarnation = uuid.uuid4().hex
        self._asked, self._exit_code, self._last_words = False, None, ""
        self._to(Phase.STARTING)
        self._ready_since = None

    def drain(self, grace_seconds: float) -> None:
        """Ask the process to leave; it is killed when it is still there after ``grace_seconds``."""
        if self._process is None or self._phase is Phase.DRAINING:
            return
        self._process.terminate()
        self._kill_at = time.monotonic() + grace_seconds
        self._to(Phase.DRAINING)

    def observe(self) -> Member:
        """Look at the process now and tell what it is."""
        if self._process is not None:
            code = self._process.poll()
            if code is not None:
                self._ended(code)
            elif self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._process.kill()
            elif self._phase is Phase.STARTING and self._announce.exists():
                self._to(Phase.READY)
                self._ready_since = self._since
        return Member(
            name=self.name,
            role=self.role,
            phase=self._phase,
            since_seconds=self._since,
            incarnation=self._incarnation,
            ready_seconds=self._ready_since,
            exit_code=self._exit_code,
            asked=self._asked,
            last_words=self._last_words,
        )

    def metrics_url(self) -> str | None:
        """Base address of the process's telemetry server, or None while it has not announced one."""
        if self._phase is not Phase.READY:
            return None
        try:
            announced: dict[str, Any] = json.loads(self._announce.read_text())
        except (OSError, json.JSONDecodeError):
            return None
        url = announced.get("metrics_url")
        return str(url) if url else None

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._ended(self._process.returncode)

    def _ended(self, code: int) -> None:
        self._asked = self._phase is Phase.DRAINING
        self._process = None
        self._kill_at = None
        self._exit_code = code
        if not self._asked:
            self._last_words = self._last_line() or _signal_name(code)
        self._to(Phase.EXITED)

    def _last_line(self) -> str:
        """The last line that this process wrote into its log, without the logger's prefix."""
        try:
            with self._log.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_offset, end - 8192))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].strip() if lines else ""

    def _to(self, phase: Phase) -> None:
        self._phase = phase
        self._since = time.time()


def _signal_name(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"

"""How the processes of a run are started: forked by a process that has loaded everything already, or else executed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from rljob_operator.local.fork_server import LARGEST_BYTES
from rljob_operator.local.priority import set_niceness

PROGRAM: Final = (sys.executable, "-m", "rljob.roles")
"""What the command line of a role begins with."""

_LOADING_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 15.0


class Launched(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its process id, which no other process gets before `wait` was asked (or its parent has died)."""

    def wait(self) -> int | None:
        """How it ended, -n for signal n; None where its parent can't tell any more. Waits for its end."""


Launch = Callable[[Sequence[str], Mapping[str, str], int, int], Launched]
"""Starts (command, environment, file descriptor of its log, niceness), in a session of its own. Raises OSError."""


def execute(command: Sequence[str], environment: Mapping[str, str], log: int, niceness: int) -> Launched:
    """A `Launch` of any command, as a shell would start it."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    set_niceness(process.pid, niceness)
    return process


class _Forked:
    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid

    def wait(self) -> int | None:
        return self._server.exit_code(self.pid)


class ServerGone(Exception):
    """The fork server has ended, or does not answer."""


class ForkServer:
    """A running `rljob_operator.local.fork_server`. It loads what roles need while its creator goes on."""

    def __init__(self) -> None:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rljob_operator.local.fork_server", str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Without a pool of threads of its own, which NumPy's linear algebra would start while it is loaded.
                env=os.environ | {"PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=(its.fileno(),),
                start_new_session=True,
            )
        self._socket = mine
        self._ready = False

    def await_ready(self, seconds: float) -> bool:
        """Wait until it has loaded everything. Raises ServerGone where it has ended."""
        if not self._ready:
            self._ready = self._receive(seconds) is not None
        return self._ready

    def fork(self, words: Sequence[str], environment: Mapping[str, str], log: int, niceness: int) -> Launched:
        """Start ``rljob WORDS`` from a server that is ready. Raises ServerGone, and OSError where the machine is full."""
        message = {"words": list(words), "environment": dict(environment), "niceness": niceness}
        answer = self._ask(message, [log])
        if "pid" not in answer:
            raise OSError(0, str(answer.get("error")))
        return _Forked(self, int(answer["pid"]))

    def exit_code(self, pid: int) -> int | None:
        """How a fork that has ended did so; None where that is not known."""
        try:
            code = self._ask({"wait": pid}, []).get("exit_code")
        except ServerGone:
            return None
        return int(code) if code is not None else None

    def close(self) -> None:
        """End the server; its forks go on."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, message: Mapping[str, Any], files: list[int]) -> dict[str, Any]:
        try:
            self._socket.settimeout(_ANSWER_SECONDS)
            socket.send_fds(self._socket, [json.dumps(message).encode()], files)
        except OSError as error:
            raise ServerGone(str(error)) from None
        answer = self._receive(_ANSWER_SECONDS)
        if answer is None:
            # It might do later what was asked, and an answer that comes late would be taken for another one's.
            self.close()
            raise ServerGone("no answer")
        return answer

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        try:
            self._socket.settimeout(seconds)
            data = self._socket.recv(LARGEST_BYTES)
        except TimeoutError:
            return None
        except OSError as error:
            raise ServerGone(str(error)) from None
        if not data:
            raise ServerGone("it has ended")
        answer: dict[str, Any] = json.loads(data)
        return answer


class Launcher:
    """Starts the roles of one run as forks of one fork server.

    The server only saves time. Where it can't be started, has been killed or does not answer, a role is executed as a new
    process instead, and a new server is tried for those after it.
    """

    def __init__(self) -> None:
        self._server: ForkServer | None = None

    def prepare(self) -> None:
        """Have a server load what roles need, to be ready when the first is started."""
        if self._server is None:
            with contextlib.suppress(OSError):
                self._server = ForkServer()

    def launch(self, command: Sequence[str], environment: Mapping[str, str], log: int, niceness: int) -> Launched:
        """A `Launch` of a command that begins with PROGRAM."""
        self.prepare()
        if self._server is not None:
            try:
                # A process of its own would load the same things, and for as long.
                if self._server.await_ready(_LOADING_SECONDS):
                    return self._server.fork(command[len(PROGRAM) :], environment, log, niceness)
            except ServerGone:
                self.close()
                self.prepare()
        return execute(command, environment, log, niceness)

    def close(self) -> None:
        """End the server; what it started goes on."""
        if self._server is not None:
            self._server.close()
            self._server = None

"""How the processes of a run are started: forked by a process that has loaded everything already."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from rljob_operator.local.fork_server import LARGEST_BYTES

PROGRAM: Final = (sys.executable, "-m", "rljob.roles")
"""What the command line of a role begins with."""

_LOADING_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 15.0
_LEAVE_SECONDS: Final = 2.0


class Launched(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its process id, which no other process gets before `wait` was asked (or its parent has died)."""

    def wait(self) -> int | None:
        """How it ended, -n for signal n; None where its parent can't tell any more. Waits for its end."""


Launch = Callable[[Sequence[str], Mapping[str, str], Mapping[str, str], int, int], Launched]
"""Starts (command, environment, variables that libraries read while they are loaded, file descriptor of its log, niceness), in a
session of its own. Raises OSError."""


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

    def fork(self, words: Sequence[str], log: int, **how: Any) -> Launched:
        """Start the role that ``words`` describe from a server that is ready, ``how`` as a `Launch` says. Raises ServerGone, and
        OSError where the machine is full."""
        message = {"words": list(words), **how}
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
        """Have the server end, and with it whatever it has started and still runs."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it goes on until all have left
            self._process.wait(_LEAVE_SECONDS)

    def _ask(self, message: Mapping[str, Any], files: list[int]) -> dict[str, Any]:
        try:
            self._socket.settimeout(_ANSWER_SECONDS)
            socket.send_fds(self._socket, [json.dumps(message).encode()], files)
        except OSError as error:
            raise ServerGone(str(error)) from None
        answer = self._receive(_ANSWER_SECONDS)
        if answer is None:
            # It might still do what was asked, and a late answer would be taken for that to another request.
            self._process.kill()
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
    """Starts the roles of one run as forks of one fork server; where that was killed or does not answer, of another one. Roles of
    a server that was killed go on, and how they end is not known."""

    def __init__(self) -> None:
        self._server: ForkServer | None = None

    def prepare(self) -> None:
        """Have a server load what roles need, to be ready when the first is started."""
        if self._server is None:
            with contextlib.suppress(OSError):
                self._server = ForkServer()

    def launch(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        variables: Mapping[str, str],
        log: int,
        niceness: int,
    ) -> Launched:
        """A `Launch` of a command that begins with PROGRAM."""
        how = {"environment": dict(environment), "variables": dict(variables), "niceness": niceness}
        for _ in range(2):
            self.prepare()
            if self._server is None:
                break
            try:
                if self._server.await_ready(_LOADING_SECONDS):
                    return self._server.fork(command[len(PROGRAM) :], log, **how)
                break
            except ServerGone:
                self._server = None
        raise OSError(errno.EAGAIN, "the process that starts roles does not answer")

    def close(self) -> None:
        """End the server, and whatever it has started and still runs."""
        if self._server is not None:
            self._server.close()
            self._server = None

"""Roles as processes of their own, forked by one that has loaded what they need, as `rljob run` starts them."""

import functools
import os
import signal
from pathlib import Path

from rljob_operator.local.launch import Launched, Launcher
from rljob_operator.local.run_folder import ProcessIdentity

from tests.support.waiting import eventually


@functools.cache
def _launcher() -> Launcher:
    """The one of this process of tests, with which it ends."""
    return Launcher()


class ForkedRole:
    """A process of ``role``, which writes to ``log``; ``options`` of its command by their names with underscores, "" a flag."""

    def __init__(self, role: str, log: Path, variables: dict[str, str] | None = None, **options: object) -> None:
        words = [f"--{name.replace('_', '-')}={value}".removesuffix("=") for name, value in options.items()]
        own, environment = os.getpriority(os.PRIO_PROCESS, 0), os.environ | (variables or {})

        def launched() -> Launched | None:
            return _launcher().launch([role, *words], environment, {}, out.fileno(), own)

        with log.open("ab") as out:
            self._launched = eventually(launched, "the libraries of roles are loaded", 300.0)
        self.pid = self._launched.pid
        self._identity = ProcessIdentity.of(self.pid)
        self._code: int | None = None

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        if self._code is None and not (self._identity and self._identity.alive):
            self._code = self._launched.wait()
        return self._code

    def wait(self, seconds: float = 60.0) -> int:
        """How it ends, within ``seconds``."""
        eventually(lambda: self.poll() is not None, "it has not ended", seconds)
        return self.poll() or 0

    def send_signal(self, number: signal.Signals) -> None:
        if self._identity:
            self._identity.send(number)

    def close(self) -> None:
        """Kill it, if it still runs."""
        self.send_signal(signal.SIGKILL)
        self.wait()

"""Signals that end a session: Ctrl-C, SIGTERM and the end of the terminal, as one flag."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType


class Interrupt:
    """Whether an orderly end was asked for. The first signal asks for it; a second Ctrl-C or SIGTERM gives up at once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def install(self) -> None:
        """Take over SIGINT, SIGTERM and SIGHUP of this process."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def set(self) -> None:
        """Ask for an orderly end, as the first signal does."""
        self._event.set()

    @property
    def requested(self) -> bool:
        """Whether an orderly end has been asked for."""
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep, but not past the first request."""
        if self.requested:
            time.sleep(seconds)
        else:
            self._event.wait(seconds)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number != signal.SIGHUP:
            raise KeyboardInterrupt
        self._event.set()

"""What runs until it is told to stop, on a thread of the test's process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def running(run: Callable[[threading.Event], None], name: str | None = None) -> Iterator[threading.Event]:
    """``run(stop)`` on a thread until the block ends, or sets ``stop``; whatever it raises fails the test."""
    stop, failures = threading.Event(), []

    def body() -> None:
        try:
            run(stop)
        except BaseException as error:  # noqa: BLE001 (told to the test's own thread)
            failures.append(error)

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive(), "it does not stop"
        assert not failures, failures


@contextmanager
def repeating(body: Callable[[], object], name: str | None = None) -> Iterator[None]:
    """``body()`` again and again on a thread until the block ends."""

    def run(stop: threading.Event) -> None:
        while not stop.is_set():
            body()

    with running(run, name):
        yield

"""Threads that run until they are told to stop, waiting for what threads and processes do, and what a test knows to be there
or to fail."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


def eventually(
    condition: Callable[[], T],
    describe: str | Callable[[], object] = "it did not happen",
    seconds: float = 60.0,
    between: Callable[[], object] = lambda: time.sleep(0.01),
) -> T:
    """Waits until ``condition`` answers something true, and answers that. ``between`` runs after each look that finds nothing.

    Fails after ``seconds`` with ``describe``, which is asked only then if it is a function.
    """
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds:g} s: {describe() if callable(describe) else describe}")
        between()
    return answer


async def until(holds: Callable[[], bool], seconds: float = 25.0) -> None:
    """Waits in an event loop until it ``holds``."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


def known(value: T | None) -> T:
    """``value``, which is not None."""
    assert value is not None
    return value


def raising(error: BaseException) -> Callable[..., Any]:
    """What raises ``error``, whatever it is given."""

    def fails(*_: object, **__: object) -> NoReturn:
        raise error

    return fails


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

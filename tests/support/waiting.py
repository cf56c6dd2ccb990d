"""Waiting for what other threads and processes do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

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

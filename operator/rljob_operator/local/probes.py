"""What the kubelet's liveness probe does on a cluster, for the processes of one machine: asks each for its `/healthz`.

A stopped process still takes connections (the kernel does), so only an answer counts. One whose loop stands still beside a
server thread that answers says so with 503.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from rljob.threads import SupervisedThread

from rljob_operator.core.liveness import NO_ANSWER, problem_of

PERIOD_SECONDS = 2.0
TIMEOUT_SECONDS = 2.0
_LONGEST_ANSWER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """Where a member is asked: the base address of its telemetry server, and which life of the member has it."""

    incarnation: str
    url: str


@dataclass(frozen=True, slots=True)
class Silence:
    """For how long one life of a member has not answered as it should, and how it fails to."""

    incarnation: str
    seconds: float
    because: str


class Probes:
    """Asks every target that ``watch`` was told of, every two seconds and all at once, on a thread of its own.

    ``steady`` counts seconds in which the machine is awake. What is counted as silence is only time in which this thread was
    there to hear: after the machine slept, or this process stood still, a member has its chance to answer before it counts.
    """

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._targets: Mapping[str, ProbeTarget] = {}
        self._silences: Mapping[str, Silence] = {}
        self._ended = steady()
        self._stop = threading.Event()
        self._thread = SupervisedThread("liveness-probes", self._run, until=self._stop)
        self._thread.start()

    def watch(self, targets: Mapping[str, ProbeTarget]) -> None:
        """These are the members that should answer now, by name. Raises ``ThreadEnded`` where a defect has ended the asking."""
        self._thread.check()
        self._targets = dict(targets)

    def silence(self, name: str, incarnation: str) -> Silence | None:
        """How long this life of the member has been silent; None where it answers, or was not asked yet."""
        found = self._silences.get(name)
        return found if found is not None and found.incarnation == incarnation else None

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()
        self._thread.close(timeout_seconds=TIMEOUT_SECONDS + 1.0)

    def _run(self) -> None:
        while not self._stop.wait(self._pause_seconds()):
            self.ask()

    def _pause_seconds(self) -> float:
        """Until the next round; a short one where somebody was silent, so that a member that answers again is soon known to."""
        return 0.5 if self._silences else max(0.0, self._ended + PERIOD_SECONDS - self._steady())

    def ask(self) -> None:
        """One round: ask everybody, and add up the silence of those who did not answer."""
        targets, began = self._targets, self._steady()
        problems = asyncio.run(_ask_all([target.url for target in targets.values()]))
        now = self._steady()
        heard = min(now - began, TIMEOUT_SECONDS)
        since_before = min(now - self._ended, TIMEOUT_SECONDS + 1.0)
        before, self._ended = self._silences, now
        silences = {}
        for (name, target), problem in zip(targets.items(), problems, strict=True):
            if problem:
                known = before.get(name)
                goes_on = known is not None and known.incarnation == target.incarnation
                seconds = known.seconds + since_before if known is not None and goes_on else heard
                silences[name] = Silence(target.incarnation, seconds, problem)
        self._silences = silences


async def _ask_all(urls: list[str]) -> list[str]:
    return await asyncio.gather(*(_ask(url) for url in urls))


async def _ask(url: str) -> str:
    """What is wrong with the member there; empty where it is alive."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            answer = await _healthz(url)
    except (OSError, TimeoutError, ValueError):
        return NO_ANSWER
    head, _, body = answer.partition(b"\r\n\r\n")
    code = head.split(b" ", 2)[1] if head.startswith(b"HTTP/") and head.count(b" ") else b""
    return problem_of(int(code), body.decode(errors="replace")) if code.isdigit() else NO_ANSWER


async def _healthz(url: str) -> bytes:
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        await writer.drain()
        answer = b""
        while len(answer) < _LONGEST_ANSWER_BYTES and (piece := await reader.read(_LONGEST_ANSWER_BYTES)):
            answer += piece
        return answer
    finally:
        writer.transport.abort()

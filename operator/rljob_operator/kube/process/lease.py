"""Leader election: of all candidates one holds the Lease, and works while it does.

The Lease is renewed by a thread with an event loop and a connection of its own, so that a reconciliation which keeps the loop of
the work busy for seconds does not lose it. Clocks of two machines are never compared. A candidate takes the Lease over when it
has watched it for a whole lease duration, on its own steady clock, without seeing it renewed. A leader stops by its own steady
clock, before another one can have seen that. The times written into the Lease are for people.

The library has an election of this kind (`kubernetes.aio.leaderelection`). It is not used: it judges by the time of day, which
leaps, does not bound its calls, and never releases, so that every upgrade would wait for the Lease to run out.
"""

import asyncio
import functools
import logging
import queue
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    NotLeader,
    Unauthorized,
)
from rljob_operator.kube.apiserver.resources import LEASES

log = logging.getLogger(__name__)

RELEASED_SECONDS = 1
"""The duration written into a Lease that is given up: what it says does not matter, but it must not be 0."""


_ANOTHER_LOGIN: dict[type[Exception], str] = {
    Unauthorized: "; where its ServiceAccount was made anew its pod needs another token: kubectl rollout restart deployment"
}


class LeadershipLost(Exception):
    """The Lease could not be renewed in time, or another one has it. What is known is out of date, and is to be dropped."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a Lease holds, until when a leader tries to renew it, how often it is read: client-go's own numbers.

    One try has half the time until the deadline, so that an answer which does not come leaves time for a second try. Work that is
    cancelled at the deadline has half the rest of the lease to end.
    """

    duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    @property
    def stop_seconds(self) -> float:
        """For cancelled work."""
        return (self.duration_seconds - self.renew_deadline_seconds) / 2


class Elector:
    """One candidate for one Lease.

    Args:
        connect: makes the client that the Lease is held with; called in the thread that holds it.
        identity: unlike that of every other candidate, also of this machine's former lives.
        steady: counts seconds and only goes forward.
    """

    def __init__(
        self,
        connect: Callable[[], Coroutine[Any, Any, Client]],
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect, self._namespace, self._name, self.identity = connect, namespace, name, identity
        self._times, self._steady = times or LeaseTimes(), steady
        self._renewed: float | None = None  # when the renewal that has succeeded last was sent
        self._looked = float("-inf")  # when the Lease was read last
        self._seen: tuple[object, ...] | None = None
        self._seen_at = 0.0
        self.holder = ""
        """Who held the Lease when it was last read."""

    @property
    def leading(self) -> bool:
        """Whether the Lease is ours, with enough time left for what is sent now to arrive before another one can have it."""
        renewed = self._renewed
        return renewed is not None and self._steady() - renewed < self._times.renew_deadline_seconds

    @property
    def in_touch(self) -> bool:
        """Whether the Lease was seen within its duration: the API server answers, and its login and rights do."""
        return self._steady() - self._looked < self._times.duration_seconds

    def check(self) -> None:
        """Raises `NotLeader` unless this process leads: to be asked before every write, as a `Client`'s guard."""
        if not self.leading:
            raise NotLeader(f"{self.identity} does not hold the lease {self._namespace}/{self._name}")

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, hold it while ``work`` runs, and release it when that has ended, in whatever way.

        ``work`` is cancelled when the Lease is lost, and when this call is; it then has `LeaseTimes.stop_seconds` to end. Work
        that needs longer to stop in good order ends by itself, and the Lease is renewed until it has.

        Raises:
            LeadershipLost: while it ran. Nothing is released, since it is not ours any more.
            Exception: what ``work`` has raised.
        """
        loop, won = asyncio.get_running_loop(), asyncio.Event()
        leave: queue.SimpleQueue[bool] = queue.SimpleQueue()  # and whether the Lease may be released

        async def when_won() -> None:
            await won.wait()
            log.info("%s leads", self.identity)
            await work()

        working = asyncio.ensure_future(when_won())
        working.add_done_callback(lambda _: leave.put(True))
        tell = functools.partial(loop.call_soon_threadsafe, won.set)
        holding = asyncio.ensure_future(asyncio.to_thread(self._hold, tell, leave))
        try:
            await asyncio.wait({working, holding}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            ended, _ = await asyncio.wait({working}, timeout=self._times.stop_seconds)
            if not ended:
                log.error("%s: the work has not ended within %g s", self.identity, self._times.stop_seconds)
                leave.put(False)
            await asyncio.wait({holding})
            self._renewed = None
        holding.result()
        await working

    def _hold(self, won: Callable[[], object], leave: queue.SimpleQueue[bool]) -> None:
        """In its own thread: take the Lease, renew it until told to leave, and release it.

        Raises `LeadershipLost` at the renewal's deadline, or as soon as another one holds the Lease.
        """
        with asyncio.Runner() as runner:
            client = runner.run(self._connect())
            try:
                while True:
                    led = self._renewed is not None
                    held = runner.run(self._try(client))
                    if held and not led:
                        won()
                    often = self._times.retry_seconds
                    pause = min(often / 4, self._left) if led and not held else often
                    with suppress(queue.Empty):
                        if leave.get(timeout=max(0.0, pause)) and self._renewed is not None:
                            runner.run(self._release(client))
                        return
            finally:
                runner.run(client.close())

    @property
    def _left(self) -> float:
        """Until the renewal's deadline."""
        assert self._renewed is not None
        return self._renewed + self._times.renew_deadline_seconds - self._steady()

    async def _try(self, client: Client) -> bool:
        """Read the Lease once, and change it once; whether it is ours after that."""
        seconds = self._times.renew_deadline_seconds / 2
        if self._renewed is not None:
            seconds = min(seconds, self._left)
            if seconds <= 0.0:
                raise LeadershipLost(f"{self.identity}: the lease could not be renewed in time")
        try:
            async with asyncio.timeout(seconds):
                return await self._take_or_renew(client)
        except Conflict:
            return False  # another one was faster, or an earlier change of ours has arrived after all
        except (ApiError, TimeoutError) as problem:
            words = f"{problem}{_ANOTHER_LOGIN.get(type(problem), '')}" or f"no answer within {seconds:.1f} s"
            log.warning("%s: the lease can't be had: %s", self.identity, words)
            return False

    async def _take_or_renew(self, client: Client) -> bool:
        """Renew the Lease; take it if it is free, or its holder was not seen to renew it for as long as it holds."""
        sent, now = self._steady(), _now()
        ours = {"holderIdentity": self.identity, "leaseDurationSeconds": max(1, round(self._times.duration_seconds))}
        taken = ours | {"acquireTime": now, "renewTime": now}
        try:
            lease = await client.get(LEASES, self._namespace, self._name)
        except NotFound:
            document = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self._name, "namespace": self._namespace},
            }
            with suppress(AlreadyExists):  # another one was faster
                await client.create(LEASES, document | {"spec": taken | {"leaseTransitions": 0}})
                self._looked = self._renewed = sent
                self.holder = self.identity
                return True
            return False
        self._looked = sent
        spec: dict[str, Any] = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in (self.holder, self.identity):
            log.info("%s stands by: %s holds the lease", self.identity, holder or "no process")
        self.holder = holder
        seen = tuple(spec.get(name) for name in ("holderIdentity", "acquireTime", "renewTime", "leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._steady()
        change = ours | {"renewTime": now}
        if holder != self.identity:
            if self._renewed is not None:
                raise LeadershipLost(f"{self.identity}: the lease is held by {holder or 'no process'}")
            holds = max(float(spec.get("leaseDurationSeconds") or 0), self._times.duration_seconds)
            if holder and self._steady() - self._seen_at < holds:
                return False
            change = taken | {"leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        await client.patch(
            LEASES, self._namespace, self._name, {"spec": change}, resource_version=lease["metadata"]["resourceVersion"]
        )
        self._renewed, self.holder = sent, self.identity
        return True

    async def _release(self, client: Client) -> None:
        """Let another one have the Lease at once, if it is still ours."""
        try:
            async with asyncio.timeout(self._times.renew_deadline_seconds / 2):
                lease = await client.get(LEASES, self._namespace, self._name)
                if (lease.get("spec") or {}).get("holderIdentity") != self.identity:
                    return
                free = {"holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS, "renewTime": _now()}
                await client.patch(
                    LEASES,
                    self._namespace,
                    self._name,
                    {"spec": free},
                    resource_version=lease["metadata"]["resourceVersion"],
                )
                log.info("%s has released the lease", self.identity)
        except (ApiError, TimeoutError) as problem:
            log.warning("%s: the lease could not be released: %s", self.identity, str(problem) or "no answer in time")


def new_identity() -> str:
    """A name for this process that no other one has, and that tells people where it runs."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


def _now() -> str:
    """The time of day as Kubernetes writes it where microseconds matter."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

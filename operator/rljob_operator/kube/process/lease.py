"""Leader election: of all candidates one holds the Lease, and works while it does.

Nobody compares clocks of two machines. A candidate takes the Lease over when it has watched it for a whole lease duration, on its
own steady clock, without seeing it renewed. A leader stops by its own steady clock, before anybody else can have seen that. The
times written into the Lease are for people.

The library has a lock of this kind (`LeaseLock`). It is not used: it has no way to release, lets errors of the connection
through, writes local time as UTC, and its calls would be neither bounded nor counted.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import AlreadyExists, ApiError, Conflict, NotFound, NotLeader
from rljob_operator.kube.apiserver.resources import LEASES, Object

log = logging.getLogger(__name__)

RELEASED_SECONDS = 1
"""The duration written into a Lease that is given up: what it says does not matter, but it must not be 0."""
RELEASE_TRIES = 3


class LeadershipLost(Exception):
    """The Lease could not be renewed in time, or somebody else has it. The process should end: what it knows is out of date."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a Lease holds, until when a leader tries to renew it, how often it is looked at, how long work may take to stop.

    Work that is cancelled at the renewal's deadline must have ended when the lease has: `stop_seconds` is at most the difference.
    """

    duration_seconds: float = 10.0
    renew_deadline_seconds: float = 6.0
    retry_seconds: float = 2.0
    stop_seconds: float = 3.0

    def __post_init__(self) -> None:
        if not 0.0 < self.retry_seconds < self.renew_deadline_seconds:
            raise ValueError("retry_seconds must be below renew_deadline_seconds, or one missed answer ends the leader")
        if self.renew_deadline_seconds + self.stop_seconds >= self.duration_seconds:
            raise ValueError(
                "duration_seconds must be longer than the renewal's deadline and the stop, or two would lead"
            )


class Elector:
    """One candidate for one Lease.

    Args:
        client: its own, so that renewals never queue up behind other calls.
        identity: unlike that of every other candidate, also of this machine's former lives.
        steady: counts seconds and only goes forward.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._namespace, self._name, self.identity = client, namespace, name, identity
        self._times = times or LeaseTimes()
        self._steady = steady
        self._renewed: float | None = None  # when the renewal that has succeeded last was sent
        self._version: str | None = None  # of the Lease as we have written it last
        self._seen: tuple[object, ...] | None = None
        self._seen_at = 0.0
        self.holder = ""
        """Who held the Lease when it was last looked at."""

    @property
    def leading(self) -> bool:
        """Whether the Lease is ours, with enough time left for what is sent now to arrive before anybody else can have it."""
        return self._renewed is not None and self._steady() - self._renewed < self._times.renew_deadline_seconds

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
        await self._acquire()
        log.info("%s leads", self.identity)
        working = asyncio.ensure_future(work())
        renewing = asyncio.ensure_future(self._renew())
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped = await self._stop(working)
            lost = renewing.done() and not renewing.cancelled()
            renewing.cancel()
            if stopped and not lost:
                await self._release()
            self._renewed = None
        if lost:
            with suppress(asyncio.CancelledError):
                renewing.result()
        await working

    async def _acquire(self) -> None:
        while not await self._try(self._take_over):
            await asyncio.sleep(self._times.retry_seconds * random.uniform(0.8, 1.0))

    async def _renew(self) -> None:
        """Renew for ever. Raises `LeadershipLost` at the deadline, or as soon as somebody else holds the Lease."""
        while True:
            await asyncio.sleep(self._times.retry_seconds)
            assert self._renewed is not None
            deadline = self._renewed + self._times.renew_deadline_seconds
            while True:
                left = deadline - self._steady()
                if left <= 0.0:
                    raise LeadershipLost(f"{self.identity}: the lease could not be renewed in time")
                if await self._try(self._keep, left):
                    break
                await asyncio.sleep(max(0.0, min(self._times.retry_seconds / 4, deadline - self._steady())))

    async def _stop(self, working: asyncio.Future[None]) -> bool:
        """Cancel the work; whether it has ended in time."""
        working.cancel()
        done, _ = await asyncio.wait({working}, timeout=self._times.stop_seconds)
        if not done:
            log.error("%s: the work has not ended within %g s", self.identity, self._times.stop_seconds)
        return bool(done)

    async def _try(self, step: Callable[[float], Awaitable[bool]], seconds: float = float("inf")) -> bool:
        """One look at the Lease and one change of it; whether it is ours after that."""
        try:
            return await step(min(seconds, self._times.renew_deadline_seconds / 2))
        except Conflict:
            return False  # somebody else was faster, or an earlier change of ours has arrived after all
        except ApiError as problem:
            log.warning("%s: the lease can't be had: %s", self.identity, problem)
            return False

    async def _take_over(self, seconds: float) -> bool:
        """Take the Lease if nobody has it, or its holder was not seen to renew it for as long as it holds."""
        sent = self._steady()
        try:
            lease = await self._client.get(LEASES, self._namespace, self._name, timeout_seconds=seconds)
        except NotFound:
            with suppress(AlreadyExists):  # somebody else was faster
                made = await self._client.create(LEASES, self._new(), timeout_seconds=seconds)
                self._renewed, self._version = sent, made["metadata"]["resourceVersion"]
                return True
            return False
        spec = lease.get("spec") or {}
        self.holder = spec.get("holderIdentity") or ""
        seen = tuple(spec.get(name) for name in ("holderIdentity", "acquireTime", "renewTime", "leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._steady()
        holds = max(float(spec.get("leaseDurationSeconds") or 0), self._times.duration_seconds)
        if self.holder not in ("", self.identity) and self._steady() - self._seen_at < holds:
            return False
        sent = self._steady()
        now = _now()
        change = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._whole_seconds,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1,
        }
        await self._change(change, lease["metadata"]["resourceVersion"], seconds)
        self._renewed, self.holder = sent, self.identity
        return True

    async def _keep(self, seconds: float) -> bool:
        """Renew the Lease as we have left it; where somebody has changed it meanwhile, see who holds it and come again."""
        sent = self._steady()
        if self._version is None:
            lease = await self._client.get(LEASES, self._namespace, self._name, timeout_seconds=seconds)
            self.holder = (lease.get("spec") or {}).get("holderIdentity") or ""
            if self.holder != self.identity:
                raise LeadershipLost(f"{self.identity}: the lease is held by {self.holder or 'nobody'}")
            self._version = lease["metadata"]["resourceVersion"]
        version, self._version = self._version, None  # unknown, until the server has answered
        await self._change({"renewTime": _now()}, version, seconds)
        self._renewed = sent
        return True

    async def _release(self) -> None:
        """Let another one have the Lease at once, if it is still ours."""
        bound = self._times.renew_deadline_seconds / 2
        for _ in range(RELEASE_TRIES):
            try:
                lease = await self._client.get(LEASES, self._namespace, self._name, timeout_seconds=bound)
                if (lease.get("spec") or {}).get("holderIdentity") != self.identity:
                    return
                change = {"holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS, "renewTime": _now()}
                await self._change(change, lease["metadata"]["resourceVersion"], bound)
            except Conflict:
                continue  # the last renewal was still on its way
            except ApiError as problem:
                log.warning("%s: the lease could not be released: %s", self.identity, problem)
                return
            log.info("%s has released the lease", self.identity)
            return

    async def _change(self, spec: Object, version: str, seconds: float) -> None:
        lease = await self._client.patch(
            LEASES, self._namespace, self._name, {"spec": spec}, resource_version=version, timeout_seconds=seconds
        )
        self._version = lease["metadata"]["resourceVersion"]

    def _new(self) -> Object:
        now = _now()
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self._whole_seconds,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }

    @property
    def _whole_seconds(self) -> int:
        return max(1, round(self._times.duration_seconds))


def new_identity() -> str:
    """A name for this process that no other one has, and that tells people where it runs."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


def _now() -> str:
    """The time of day as Kubernetes writes it where microseconds matter."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

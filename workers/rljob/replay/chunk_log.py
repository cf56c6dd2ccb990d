"""The durable side of a table: accepted chunks and the counters that go with them, in Redis.

Keys of shard k of run id, all under ``run:{id}:shard:{k}:``

=================  ======  ===========================================================================================
``chunk:{gen}``    string  one chunk as received: its parts, as a msgpack array
``log``            set     the generations of the chunks that there are
``counters``       hash    totals of the run (transitions inserted and sampled, next generation, the learner's epoch, ...)
``counted``        string  how much of each life of an actor is in the totals of steps and raw frames, as JSON
``seen``           hash    actor -> its incarnation, the highest sequence number accepted from it, and its transitions
``prio``           string  snapshot of sampling weights, LZ4
``commits``        string  how many transactions have written all of this
``owner``          string  the service that may write
=================  ======  ===========================================================================================

``run:{id}:episodes`` is a capped stream of finished games; ``run:{id}:actor:{slot}`` a hash with a time limit, the lease
of an epsilon slot.

In a Redis that others use, too, everything expires that was not written or renewed for a time: what a job leaves behind when
it ends without removing it is gone by itself.

A chunk, its index entry, the counters that include it and the evictions it caused are one transaction: after a crash
at any moment the log says about every chunk either that it was accepted and counted, or neither.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgpack  # type: ignore[import-untyped]
import redis
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import WatchError

from rljob.ingest.roster import Counted
from rljob.ingest.table import Accepted, Lease
from rljob.replay.redis_client import LostWrites, check_server
from rljob.strict_json import dumps
from rljob.wire import MalformedMessage, RawMessage, decode_header

EPISODES_KEPT = 10_000
_RENEWED_AT_ONCE = 512
_TOMBSTONE_SECONDS = 3600
"""For so long a service whose log was removed is kept from writing another one: longer than any takes to end."""


class OwnerLost(RuntimeError):
    """Another service has taken over this shard's log; this one must not write to it any more."""


class DamagedLog(RuntimeError):
    """The log's index or counters can't be read."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A server's memory as it reports it, in bytes: what it uses, its limit (0: none), and what it does at the limit.

    ``expiring``: the log's keys expire.
    """

    used_bytes: int
    limit_bytes: int
    policy: str = "noeviction"
    expiring: bool = False

    @property
    def drops_chunks(self) -> str:
        """Why the server makes room by dropping keys of its choice; empty where it does not. A volatile policy drops only what
        expires."""
        if not self.limit_bytes or not self.policy.startswith(("allkeys", "volatile") if self.expiring else "allkeys"):
            return ""
        return (
            f"Redis drops chunks to make room (maxmemory-policy is {self.policy}); "
            "set it to noeviction, or give the replay a Redis of its own"
        )


@dataclass(frozen=True, slots=True)
class LogState:
    """Everything but the chunks: totals, and what was accepted from each actor.

    ``counted``: the steps and raw frames played, and of whom they are; None in a log from before that was kept, of which the
    counters ``steps`` and ``raw_frames`` alone are known.
    """

    counters: Mapping[str, int]
    seen: Mapping[str, Accepted]
    counted: Counted | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction. ``chunks``: the generation of each, and the message as it was received. ``clear`` first removes, in a
    transaction of its own, whatever chunks are there."""

    chunks: Sequence[tuple[int, RawMessage]] = ()
    evicted: Sequence[int] = ()
    state: LogState | None = None
    clear: bool = False
    weights: bytes | None = None
    leases: Sequence[Lease] = ()
    episodes: Sequence[Mapping[str, Any]] = ()


class ChunkLog:
    """Reads and writes the keys above. Blocking; every method may raise ``redis.RedisError``.

    ``keep_seconds``: what was not written or renewed for so long expires, a quarter later at most; 0 keeps it for ever.
    """

    def __init__(self, client: Redis, run: str, shard: int, owner: str, keep_seconds: int = 0) -> None:
        self.client, self.owner = client, owner
        self._run = f"run:{run}:"
        self._shard = f"run:{run}:shard:{shard}:"
        self._counted: Counted | None = None  # what the last transaction that wrote it has written
        self.renewal_seconds = keep_seconds // 4 if keep_seconds else None
        """How often `renew` is to be called; None where nothing expires."""
        self._expires_seconds = keep_seconds + keep_seconds // 4 or None
        self._checked = False
        self._commits: int | None = None
        """Transactions since the log was begun, as Redis counts them; None where that is not known."""

    def take_over(self) -> None:
        """Become the one service that may write; a predecessor's next commit raises ``OwnerLost``.

        A full server takes no owner, but lets the old one be removed; the first commit for which there is room sets ours.
        """
        check_server(self.client)
        try:
            self.client.set(self._shard + "owner", self.owner)
        except redis.OutOfMemoryError:
            self.client.delete(self._shard + "owner")

    def memory(self) -> Memory:
        """The server's memory as it reports it: this log and all else that it holds."""
        info = self.client.info("memory")
        policy = str(info.get("maxmemory_policy", "noeviction"))
        return Memory(
            int(info["used_memory"]), int(info.get("maxmemory", 0)), policy, self._expires_seconds is not None
        )

    def renew(self) -> None:
        """Postpone the expiry of chunks; every commit does so for all other keys."""
        keys = self._chunk_keys(self.client)
        for start in range(0, len(keys), _RENEWED_AT_ONCE):
            pipe = self.client.pipeline(transaction=False)
            for key in keys[start : start + _RENEWED_AT_ONCE]:
                pipe.expire(key, self._expires_seconds or 0)
            pipe.execute()

    def remove(self) -> int:
        """Remove all that is there, and answer how many chunks; a service that still writes is `OwnerLost` from then on."""
        self.client.set(self._shard + "owner", self.owner, ex=_TOMBSTONE_SECONDS)
        keys = self._chunk_keys(self.client)
        for start in range(0, len(keys), _RENEWED_AT_ONCE):
            self.client.unlink(*keys[start : start + _RENEWED_AT_ONCE])
        self.client.unlink(*self._whole_keys)
        return len(keys)

    def _chunk_keys(self, client: Redis) -> list[str]:
        return [
            f"{self._shard}chunk:{each.decode()}" for each in cast(set[bytes], client.smembers(self._shard + "log"))
        ]

    @property
    def _whole_keys(self) -> list[str]:
        """All keys but the chunks, the leases, which end by themselves within seconds, and the owner."""
        return [
            self._run + "episodes",
            *(self._shard + name for name in ("log", "counters", "counted", "seen", "prio", "commits")),
        ]

    def commit(self, commit: Commit) -> None:
        """Write all of a commit or nothing. Raises ``OwnerLost``; after other errors the outcome is unknown.

        A client replaces a connection that was closed between two commits and says nothing. So Redis counts the commits: one that
        began again from an older snapshot, or lost its keys, has not counted the last, which is ``LostWrites``.
        """
        checked, self._checked = self._checked, False
        try:
            if not checked:
                check_server(self.client)
            if commit.clear:
                self._clear()
            self._transact(commit)
            self._checked = True
        except WatchError as error:
            # redis-py says the same of a key that another client changed and of a connection that broke while watching it.
            owner = cast(bytes | None, self.client.get(self._shard + "owner"))
            if owner is not None and owner != self.owner.encode():
                raise OwnerLost(f"the log of {self._shard} was taken over during a write") from None
            raise redis.ConnectionError("the connection was lost during a write") from error

    def _clear(self) -> None:
        """Remove the chunks. By itself, because a full server refuses a whole transaction for one write in it that needs room."""
        shard = self._shard
        with self.client.pipeline(transaction=True) as pipe:
            self._watch_owner(pipe)
            old = self._chunk_keys(pipe)
            pipe.multi()
            pipe.delete(shard + "log", shard + "prio", *old)
            pipe.execute()

    def _watch_owner(self, pipe: Pipeline) -> bool:
        """Begin a transaction that fails when the owner changes; whether there is one. Raises ``OwnerLost``."""
        pipe.watch(self._shard + "owner")  # type: ignore[no-untyped-call]
        owner = cast(bytes | None, pipe.get(self._shard + "owner"))
        if owner is not None and owner != self.owner.encode():
            raise OwnerLost(f"the log of {self._shard} now belongs to {owner.decode(errors='replace')}")
        return owner is not None

    def _transact(self, commit: Commit) -> None:
        shard = self._shard
        with self.client.pipeline(transaction=True) as pipe:
            owned = self._watch_owner(pipe)
            pipe.multi()
            if not owned:
                pipe.set(shard + "owner", self.owner)
            if commit.clear:
                pipe.delete(shard + "counters", shard + "counted", shard + "seen", shard + "commits")
                self._counted, self._commits = None, 0
            pipe.incr(shard + "commits")
            counting = len(pipe) - 1
            if commit.evicted:
                pipe.delete(*(shard + f"chunk:{generation}" for generation in commit.evicted))
                pipe.srem(shard + "log", *commit.evicted)
            for generation, raw in commit.chunks:
                pipe.set(shard + f"chunk:{generation}", msgpack.packb(raw.parts()), ex=self._expires_seconds)
            if commit.chunks:
                pipe.sadd(shard + "log", *(generation for generation, _ in commit.chunks))
            if commit.state is not None:
                pipe.hset(shard + "counters", mapping=dict[Any, Any](commit.state.counters))
                counted = commit.state.counted
                if counted is not None and counted is not self._counted:  # it is the same for a second's commits
                    pipe.set(shard + "counted", dumps(counted.document()))
                pipe.delete(shard + "seen")  # an actor that the service has forgotten is removed from the log, too
                if commit.state.seen:
                    marks = {
                        actor: f"{accepted.sequence} {accepted.transitions} {accepted.incarnation}"
                        for actor, accepted in commit.state.seen.items()
                    }
                    pipe.hset(shard + "seen", mapping=cast(dict[Any, Any], marks))
            if commit.weights is not None:
                pipe.set(shard + "prio", commit.weights)
            for lease in commit.leases:
                key = f"{self._run}actor:{lease.slot}"
                if lease.seconds > 0:
                    pipe.hset(key, mapping={"actor": lease.actor, "incarnation": lease.incarnation})
                    pipe.pexpire(key, int(lease.seconds * 1000))
                else:
                    pipe.delete(key)
            for episode in commit.episodes:
                pipe.xadd(self._run + "episodes", dict[Any, Any](episode), maxlen=EPISODES_KEPT, approximate=True)
            if self._expires_seconds is not None:
                for key in (shard + "owner", *self._whole_keys):
                    pipe.expire(key, self._expires_seconds)
            before, self._commits = self._commits, None
            commits = int(pipe.execute()[counting])
        if before is not None and commits != before + 1:
            raise LostWrites(f"Redis has {commits:,} of {before + 1:,} writes: it was restarted, or keys were removed")
        self._commits = commits
        if commit.state is not None:
            self._counted = commit.state.counted

    def state(self) -> LogState:
        """The counters and high-water marks of the last commit; empty ones when there is no log. Raises ``DamagedLog``."""
        counters = cast(dict[bytes, bytes], self.client.hgetall(self._shard + "counters"))
        counted = cast(bytes | None, self.client.get(self._shard + "counted"))
        seen = cast(dict[bytes, bytes], self.client.hgetall(self._shard + "seen"))
        try:
            return LogState(
                {name.decode(): int(value) for name, value in counters.items()},
                {actor.decode(): _accepted(value) for actor, value in seen.items()},
                None if counted is None else Counted.read(json.loads(counted)),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedLog(f"the counters of {self._shard} are damaged: {error}") from None

    def index(self) -> list[int]:
        """The generations of the stored chunks, oldest first. Raises ``DamagedLog``."""
        try:
            return sorted(map(int, cast(set[bytes], self.client.smembers(self._shard + "log"))))
        except ValueError as error:
            raise DamagedLog(f"the index of {self._shard} is damaged: {error}") from None

    def chunks(self, generations: Sequence[int]) -> list[RawMessage | None]:
        """The messages of these generations; None for one that is missing or damaged. Keep to a few hundred (F48). Raises
        ``DamagedLog`` where they are of another release's protocol."""
        values = cast(list[bytes | None], self.client.mget([f"{self._shard}chunk:{each}" for each in generations]))
        return [None if value is None else _readable(value) for value in values]

    def weights(self) -> bytes | None:
        """The last snapshot of sampling weights."""
        return cast(bytes | None, self.client.get(self._shard + "prio"))

    def leases(self, slots: int) -> list[Lease]:
        """Leases of slots 0..slots-1 that have not run out."""
        found: list[Lease] = []
        pipe = self.client.pipeline(transaction=False)
        for slot in range(slots):
            pipe.hmget(f"{self._run}actor:{slot}", "actor", "incarnation")
            pipe.pttl(f"{self._run}actor:{slot}")
        replies = pipe.execute()
        for slot in range(slots):
            (actor, incarnation), milliseconds = replies[2 * slot], replies[2 * slot + 1]
            if actor is not None and incarnation is not None and milliseconds > 0:
                found.append(Lease(slot, actor.decode(), incarnation.decode(), milliseconds / 1000))
        return found

    def episodes(self, count: int) -> list[tuple[str, dict[str, str]]]:
        """The newest ``count`` finished games, oldest first, as (stream id, fields)."""
        newest = cast(list[Any], self.client.xrevrange(self._run + "episodes", count=count))
        return [
            (identity.decode(), {name.decode(): value.decode() for name, value in fields.items()})
            for identity, fields in reversed(newest)
        ]


def _accepted(value: bytes) -> Accepted:
    sequence, transitions, incarnation = value.decode().split(" ", 2)
    return Accepted(incarnation, int(sequence), int(transitions))


def _readable(value: bytes) -> RawMessage | None:
    try:
        raw = decode_header(msgpack.unpackb(value))
        raw.verify()
    except (ValueError, TypeError, MalformedMessage) as problem:
        if isinstance(problem, MalformedMessage) and problem.reason == "version":
            raise DamagedLog(f"its chunks are of another release's protocol, {problem.detail}") from None
        return None
    return raw

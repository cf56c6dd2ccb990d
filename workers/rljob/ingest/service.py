"""The actors' side of the service: sessions, credits, exactly-once acceptance, acknowledgements, heartbeats."""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rljob.experience import InvalidSegment, Segment
from rljob.ingest.roster import Roster, episode_fields
from rljob.ingest.table import (
    LEASE_SECONDS,
    Accepted,
    AcceptedOfActors,
    Grants,
    IngestTable,
    Lease,
    NoLog,
    SlotLeases,
    share_credits,
)
from rljob.telemetry import timeline
from rljob.wire import CreditCheck, CreditLedger, MalformedMessage, Message, RawMessage, Scalar, Server

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Session:
    """One connection of one incarnation of an actor.

    Attributes:
        heard_at: monotonic time of its last message.
        acknowledge: the sequence number up to which chunks are safe and their actor was not yet told so.
        waiting: accepted chunks whose acknowledgement waits for the log.
        accepted_any: whether a chunk was accepted in this session.
        lease_written_at: monotonic time at which its lease was last written to the log; 0 is never.
    """

    actor: str
    incarnation: str
    heard_at: float
    acknowledge: int | None = None
    waiting: int = 0
    accepted_any: bool = False
    lease_written_at: float = 0.0


CHUNKS_A_TURN = 64
_LEASE_RENEWAL_SECONDS = 3.0


class Ingest:
    """Takes messages from actors and chunks into the table. Owned by the service's thread.

    ``read`` makes a segment of the message that carries experience; it raises ``InvalidSegment`` or ``MalformedMessage``.
    ``grants``: who may send how much; None: to every actor its share, as ``table`` allows. ``serves``: whether an actor is asked
    for experience here.

    A chunk is acknowledged when the log has it, or at once when there is no log. Credits are granted against the
    limiter, the ones already given out included, so that inserting never passes its bound by what is on the way.
    """

    def __init__(
        self,
        server: Server,
        table: IngestTable,
        log: NoLog,
        roster: Roster,
        leases: SlotLeases,
        service: str,
        credits: int,
        epoch: Callable[[], int],
        timeout_seconds: float,
        read: Callable[[RawMessage], Segment],
        grants: Grants | None = None,
        serves: Callable[[str], bool] = lambda actor: True,
    ) -> None:
        self._server, self._table, self._log, self._roster = server, table, log, roster
        self._leases, self._service, self._epoch, self._timeout = leases, service, epoch, timeout_seconds
        self._read = read
        self._grants, self._serves = grants, serves
        self.ledger = CreditLedger(credits)
        self.rejected: Counter[str] = Counter()
        self.duplicates_total = self.chunks_total = self.lost_before_total = self._turn = 0
        self.accepted = AcceptedOfActors()
        self._sessions: dict[bytes, Session] = {}
        self._unacknowledged: deque[tuple[int, bytes, int]] = deque()
        self._arrivals: list[tuple[Segment, RawMessage]] = []
        self._senders: list[tuple[bytes, int]] = []

    def restore(self, accepted: Mapping[str, Accepted]) -> None:
        """Take over what the log says was accepted."""
        self.accepted.by_actor = dict(accepted)
        for actor, latest in accepted.items():
            self.ledger.restore(actor, latest.incarnation, latest.sequence)
            self._know(actor)

    def receive(self, now: float) -> int:
        """Handle what has arrived, up to ``CHUNKS_A_TURN`` chunks as one insert. Returns the messages handled."""
        handled = 0
        while len(self._arrivals) < CHUNKS_A_TURN and handled < 4 * CHUNKS_A_TURN:
            received = self._server.receive_raw()
            if received is None:
                break
            handled += 1
            peer, raw = received
            if raw.kind == self._table.layout.kind:
                chunk = self._judge(peer, raw, now)
                if chunk is not None:
                    self._arrivals.append((chunk, raw))
                    self._senders.append((peer, chunk.sequence))
                continue
            self._store()  # other messages ask what is stored
            try:
                self._other(peer, raw.message(), now)
            except MalformedMessage as error:
                self._server.refuse(peer, error, raw.kind)
        self._store()
        return handled

    def reply(self) -> None:
        """Send the acknowledgements that have become due, and the credits that the limiter allows."""
        safe = self._log.acknowledged
        while self._unacknowledged and self._unacknowledged[0][0] < safe:
            _, peer, sequence = self._unacknowledged.popleft()
            session = self._sessions.get(peer)
            if session is not None:
                session.waiting = max(0, session.waiting - 1)
                session.acknowledge = max(sequence, -1 if session.acknowledge is None else session.acknowledge)
        grants = self._shares()
        for peer, session in self._sessions.items():
            credits = grants.get(peer, 0)
            if session.acknowledge is not None:
                fields = {"seq": session.acknowledge, "durable": self._log.durable, **self._asked(credits)}
                if self._server.send(peer, Message("ack", fields, {})):
                    session.acknowledge = None
                    self.ledger.granted(peer, credits)
            elif (
                credits and not session.waiting and self._server.send(peer, Message("credit", self._asked(credits), {}))
            ):
                self.ledger.granted(peer, credits)

    @property
    def inserts_wait(self) -> bool:
        """Whether an actor without a single credit is waiting for the limiter."""
        return any(
            self.ledger.outstanding(peer) == 0 and session.waiting == 0 and session.acknowledge is None
            for peer, session in self._sessions.items()
        )

    def expire(self, now: float) -> None:
        """End the sessions of actors that fell silent; their credits and slots become free."""
        for peer, session in list(self._sessions.items()):
            if now - session.heard_at > self._timeout:
                log.info("actor %s: silent for %.0f s, its credits and its slot are free", session.actor, self._timeout)
                self._end(peer)
        self._roster.lose(self._timeout, 20 * self._timeout, now)
        self._leases.expire(now)

    def _store(self) -> None:
        """Insert what was accepted and not yet stored."""
        if not self._arrivals:
            return
        first = self._table.head
        self._log.evicted(self._table.insert(self._arrivals))
        self.chunks_total += len(self._arrivals)
        for offset, (peer, sequence) in enumerate(self._senders):
            self._unacknowledged.append((first + offset, peer, sequence))
        self._arrivals, self._senders = [], []

    def _judge(self, peer: bytes, raw: RawMessage, now: float) -> Segment | None:
        session = self._sessions.get(peer)
        fields: Any = raw.fields
        sequence: int = fields["seq"]
        if session is None or (fields["actor"], fields["inc"]) != (session.actor, session.incarnation):
            self.rejected["unknown"] += 1
            self._pulse(peer, known=False)
            return None
        session.heard_at = now
        verdict = self.ledger.receive(peer, sequence)
        if verdict is CreditCheck.GAP and not session.accepted_any:
            # The first chunk after a hello is the oldest one its actor still has. What lies between was acknowledged
            # while Redis was gone and lost with the service: no actor can send it again.
            missing = sequence - 1 - self.ledger.accepted(peer)
            self.lost_before_total += missing
            log.warning("actor %s: %d chunks before chunk %d were lost with Redis", session.actor, missing, sequence)
            self.ledger.restore(session.actor, session.incarnation, sequence - 1)
            verdict = self.ledger.receive(peer, sequence)
        if verdict is CreditCheck.NEW:
            session.accepted_any = True
            session.waiting += 1
            self.accepted.note(session.actor, session.incarnation, sequence, 0)
            began = time.perf_counter_ns()
            try:
                chunk = self._read(raw)
                if (recording := timeline.recording) is not None:
                    recording.flow("t", chunk.origin, "take in", began)
                self.accepted.note(session.actor, session.incarnation, sequence, chunk.steps)
                return chunk
            except (InvalidSegment, MalformedMessage) as error:
                # It would be refused again: so it is counted, and acknowledged so that it is not sent again.
                self.rejected["invalid"] += 1
                log.warning("actor %s: chunk %d refused: %s", session.actor, sequence, error)
                self._server.send(peer, Message("refused", {"reason": _reason(error)}, {}))
        elif verdict is CreditCheck.DUPLICATE:
            self.duplicates_total += 1
            session.waiting += 1
        else:
            # The session ends here: otherwise a later chunk could be taken for the first one after a hello.
            self.rejected[verdict.value] += 1
            self._end(peer)
            self._pulse(peer, known=False)
            return None
        self._store()
        # A duplicate may still be on its way into the log, like everything stored so far.
        self._unacknowledged.append((self._table.head - 1, peer, self.ledger.accepted(peer)))
        return None

    def _other(self, peer: bytes, message: Message, now: float) -> None:
        fields: Any = message.fields
        session = self._sessions.get(peer)
        if message.kind == "hello":
            if (differs := self._table.layout.other_leaves(message.columns)) is not None:
                self.rejected["leaves"] += 1
                self._server.send(peer, Message("refused", {"reason": _reason(differs)}, {}))
                return
            self._hello(peer, fields, now)
        elif message.kind in ("heartbeat", "alive"):
            known = session is not None and (session.actor, session.incarnation) == (fields["actor"], fields["inc"])
            if session is not None and known:
                session.heard_at = now
                (self._roster.heard if message.kind == "heartbeat" else self._roster.alive)(message, now)
                self._renew(session, now)
            self._pulse(peer, known=known)
        elif message.kind == "episodes" and session is not None and session.actor == fields["actor"]:
            entries = self._roster.finished(message, round(time.time(), 3))
            self._log.episodes([episode_fields(entry) for entry in entries])
        elif message.kind == "goodbye" and session is not None:
            self._roster.left(session.actor, session.incarnation)
            slot = self._leases.release(session.actor)
            if slot is not None:
                self._log.lease(Lease(slot, session.actor, session.incarnation, 0.0))
            self._end(peer)
        elif message.kind in ("episodes", "goodbye"):
            self.rejected["unknown"] += 1
            self._pulse(peer, known=False)
        else:
            self.rejected["kind"] += 1
            self._server.send(peer, Message("refused", {"reason": f"{message.kind} is no message for ingest"}, {}))

    def _hello(self, peer: bytes, hello: Mapping[str, Any], now: float) -> None:
        actor, incarnation = hello["actor"], hello["inc"]
        before = self._sessions.get(peer)
        again = before is not None and (before.actor, before.incarnation) == (actor, incarnation)
        sequence = self.ledger.hello(peer, actor, incarnation)
        for old in [p for p, s in self._sessions.items() if s.actor == actor or p == peer]:
            del self._sessions[old]
        session = self._sessions[peer] = Session(actor, incarnation, now)
        self._know(actor)
        slot = self._leases.take(actor, incarnation, now)
        self._roster.joined(actor, incarnation, slot, now, known=self.accepted.knows(actor, incarnation))
        self._renew(session, now)
        # Nothing may be acknowledged, not even in a welcome, before the log has it.
        last_safe = sequence if self._log.acknowledged == self._table.head else self._safe(actor, sequence)
        credits = self._shares().get(peer, 0)
        fields: dict[str, Scalar] = {
            "service": self._service,
            "slot": slot,
            "slots": self._leases.slots,
            "life": self._leases.lives[slot],
            "epoch": self._epoch(),
            "seq": last_safe,
            **self._asked(credits),
        }
        if "session" in hello:  # lets the actor tell an answer to its latest hello from one to an earlier hello
            fields["session"] = hello["session"]
        if self._server.send(peer, Message("welcome", fields, {})):
            self.ledger.granted(peer, credits)
            # Hellos queue up while this service restores its table; all but the first change nothing.
            level = logging.DEBUG if again else logging.INFO
            log.log(
                level, "actor %s: welcome, slot %d of %d, last chunk %d", actor, slot, self._leases.slots, last_safe
            )
        else:
            self._end(peer)

    def _know(self, actor: str) -> None:
        """Remember an actor, and forget everything about the actor that this drops, if it drops one."""
        stranger = self.accepted.remember(actor, {session.actor for session in self._sessions.values()})
        if stranger is not None:
            self.ledger.forget_actor(stranger)
            self._leases.forget(stranger)

    def _safe(self, actor: str, accepted: int) -> int:
        held = range(self._table.oldest, self._table.head)
        waiting = [self._table.chunk(ordinal).raw.fields for ordinal, _, _ in self._unacknowledged if ordinal in held]
        pending = [int(f["seq"]) for f in waiting if f["actor"] == actor]
        return min([accepted, *(sequence - 1 for sequence in pending)])

    def _renew(self, session: Session, now: float) -> None:
        if now - session.lease_written_at >= _LEASE_RENEWAL_SECONDS or session.lease_written_at == 0.0:
            session.lease_written_at = now
            slot = self._leases.take(session.actor, session.incarnation, now)
            self._log.lease(Lease(slot, session.actor, session.incarnation, LEASE_SECONDS))

    def _pulse(self, peer: bytes, *, known: bool) -> None:
        self._server.send(peer, Message("pulse", {"service": self._service, "known": known}, {}))

    def _end(self, peer: bytes) -> None:
        self.ledger.forget(peer)
        self._sessions.pop(peer, None)

    def _shares(self) -> dict[bytes, int]:
        turn, self._turn = self._turn, self._turn + 1
        wanted = {
            peer: self.ledger.grantable(peer) for peer, session in self._sessions.items() if self._serves(session.actor)
        }
        outstanding = {peer: self.ledger.outstanding(peer) for peer in self._sessions}
        if self._grants is not None:
            return self._grants.share(wanted, outstanding, turn)
        table = self._table
        return share_credits(wanted, sum(outstanding.values()), table.layout.length, table.can_insert, turn)

    def _asked(self, credits: int) -> dict[str, Scalar]:
        least = self._grants.least_version if self._grants is not None else None
        return {"credits": credits} if least is None else {"credits": credits, "pv": least}


def _reason(error: object) -> str:
    return str(error).encode("ascii", "replace")[:200].decode()

"""The learner's side of weights: it announces versions and serves the latest; actors and the evaluator fetch when it suits them.

A version is encoded and digested once, however many clients ask for it, in parts of 4 MB. Nothing is queued: a notice says only
"there is version v", a fetch gets whatever is latest when it is answered, and a client that missed every notice still asks once
every few seconds. A client asks for parts, so that one which reads slowly has no more than three of them waiting in the learner.
An evaluator asks for the evaluation weights (a moving average of the online ones where the job keeps one) and reports its
verdict, with the weights it judged, over the same socket.
"""

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import zmq
from torch import nn

from rljob.api.learner_status import EvaluationUnderWay
from rljob.threads import SupervisedThread
from rljob.weights.flat import Evaluation, Snapshot, Weights, unpacked_document
from rljob.weights.relay import RelayTree
from rljob.wire import MalformedMessage, Message, Part, Publisher, Scalar, Server, ServerSecurity, decode_header, encode

PART_BYTES: Final = 4 << 20
_VERSIONS: Final = 4
_LEAST_SHARE_RELAYED: Final = 16
"""A smaller share of a part is sent sooner than it is passed on: 256 kB."""
_IDLE_SECONDS: Final = 10.0
_LONGEST_SECONDS: Final = 60.0


class PublishedVersion:
    """``weights`` as the messages that carry them. libzmq shares their memory among all peers; only CURVE copies it, as it must.

    ``averaged``: they are for the evaluator alone. They travel in parts of ``part_bytes``, the last of which is shorter.
    """

    def __init__(self, weights: Weights, averaged: bool, part_bytes: int = PART_BYTES) -> None:
        self.key = weights.epoch, weights.version
        self.made_at = self.asked_at = time.monotonic()
        self._to_ask: dict[bytes, int] = {}
        self._sent_at: dict[bytes, dict[int, float]] = {}
        size = len(weights.buffer)
        self._relayed = size * _LEAST_SHARE_RELAYED >= part_bytes
        parts = [weights.buffer[begin : begin + part_bytes] for begin in range(0, size, part_bytes)]
        of = {"epoch": weights.epoch, "version": weights.version, "averaged": averaged}
        digests = b"".join(hashlib.sha256(part.data).digest() for part in parts)
        columns = {"manifest": weights.manifest, "digests": np.frombuffer(digests, np.uint8).reshape(-1, 32)}
        self._announcement = decode_header(
            encode(Message("weights", {**of, "size": size, "part": part_bytes}, columns))
        )
        messages = (
            encode(Message("part", {**of, "index": index}, {"buffer": part})) for index, part in enumerate(parts)
        )
        self.parts: list[list[Part]] = [
            [zmq.Frame(each, copy=False) if len(each) >= zmq.COPY_THRESHOLD else each for each in message]
            for message in messages
        ]

    def announcement(self, peer: bytes, relay: str) -> list[Sequence[Part]]:
        """What a client is told first: the digests (sha256) of all parts, and ``relay``, the endpoint of an actor to take them
        from, if any, and if they are worth it. The part itself comes with it where it is the only one."""
        self.asked_at, relay = time.monotonic(), relay if self._relayed else ""
        self._sent_at[peer] = {}  # it may have given up what was sent to it
        told = self._announcement.rekind("weights", {"relay": relay})
        if len(self.parts) == 1 and not relay:
            return [told, *self.part(peer, 0)]
        self._to_ask |= {} if relay else {peer: len(self.parts)}
        return [told]

    def part(self, peer: bytes, index: int) -> list[Sequence[Part]]:
        """The message with one part; none where it is on its way to this peer. Raises IndexError where there is no such part.

        A connection loses nothing, and a client that has another one is another peer: over a slow link a part that is asked for
        again would only travel twice.
        """
        now = self.asked_at = time.monotonic()
        sent_at = self._sent_at.setdefault(peer, {})
        if now - sent_at.get(index, -_LONGEST_SECONDS) < _LONGEST_SECONDS:
            return []
        sent_at[index] = now
        self._to_ask[peer] = self._to_ask.get(peer, 1) - 1  # a client that a relay has left alone asks for a few
        if self._to_ask[peer] <= 0:
            del self._to_ask[peer]
        return [self.parts[index]]

    def is_fetched(self, now: float) -> bool:
        """Whether a client has parts to ask for still. One that is gone, or very slow, is not waited for."""
        return bool(self._to_ask) and now - self.asked_at < _IDLE_SECONDS and now - self.made_at < _LONGEST_SECONDS


class PublishedVersions:
    """The versions of one kind that clients are fetching. Used by the thread that serves them.

    A version stays until its clients have asked for all parts: a learner that publishes faster than they can fetch would
    otherwise give no client a whole one. Four are kept at most: while all of them are fetched, the newest of them is handed out.
    """

    def __init__(self, averaged: bool, part_bytes: int) -> None:
        self._averaged, self._part_bytes = averaged, part_bytes
        self._kept: list[PublishedVersion] = []
        self.encodings = 0

    def announced(self, latest: Snapshot) -> PublishedVersion:
        """``latest``, or the newest version before it that may be handed out now."""
        now, newest = time.monotonic(), self._kept[-1] if self._kept else None
        if newest is None or newest.key != latest.key:
            # Those of another epoch are given up, by a fork as well.
            kept = [each for each in self._kept if each.key[0] == latest.key[0] and each.is_fetched(now)]
            if newest is None or len(kept) < _VERSIONS:
                newest = PublishedVersion(latest.weights, self._averaged, self._part_bytes)
                self._kept = [*kept, newest]
                self.encodings += 1
        return newest

    def part(self, peer: bytes, fields: Mapping[str, Scalar]) -> list[Sequence[Part]] | None:
        """What answers a request for a part, see `PublishedVersion.part`; None where there is no such part, or no longer."""
        for each in self._kept:
            if each.key == (fields["epoch"], fields["version"]) and int(fields["index"]) < len(each.parts):
                return each.part(peer, int(fields["index"]))
        return None


log = logging.getLogger(__name__)

_WORD_SECONDS = 30.0
"""An evaluator that has sent nothing for so long is gone: between two messages a game may start on a busy machine."""


class WeightServer:
    """Serves the latest weights from a thread of its own; the training loop only hands them over.

    ``weights`` and ``notice`` are endpoints to bind; the attributes of the same name say what they resolved to.
    ``publish`` belongs to one thread, the training loop's; everything else may be called from any.
    """

    def __init__(
        self, weights: str, notice: str, security: ServerSecurity | None = None, *, part_bytes: int = PART_BYTES
    ) -> None:
        self._server = Server(weights, security)
        self._publisher = Publisher(notice, security)
        self.weights, self.notice = self._server.endpoint, self._publisher.endpoint
        self._latest: Snapshot | None = None
        self._evaluation: Snapshot | None = None
        self._relays = RelayTree()
        self._published = [PublishedVersions(averaged, part_bytes) for averaged in (False, True)]
        self._evaluations: deque[Evaluation] = deque(maxlen=64)
        self._evaluating: tuple[EvaluationUnderWay, float] | None = None
        self._stop = threading.Event()
        self.heard_epoch = 0
        """The latest epoch that a client has weights of."""
        self.fetches = self.sent_bytes = 0
        self._thread = SupervisedThread("weight-server", self._serve, until=self._stop)
        self._thread.start()

    def publish(
        self,
        module: nn.Module,
        version: int,
        epoch: int,
        meta: Mapping[str, Any],
        evaluation: nn.Module | None = None,
    ) -> None:
        """Make a copy of ``module`` the latest weights and announce them.

        ``evaluation``: the module to judge, where it differs; without it the evaluation weights stay what they were, or are
        the published ones as long as there never were others. The swap is one reference: a fetch sees the old or the new. The
        caller makes the copies, and waits for no GPU; whatever else a version takes, the serving thread does for the first client
        that asks.
        """
        if evaluation is not None:
            self._evaluation = Snapshot(evaluation.state_dict(), version, epoch, meta)
        self._latest = Snapshot(module.state_dict(), version, epoch, meta)
        self._publisher.publish(version.to_bytes(8, "big"))

    @property
    def latest(self) -> Weights | None:
        """What was published last, the same object every time; None before the first."""
        return self._latest.weights if self._latest is not None else None

    def evaluations(self) -> list[Evaluation]:
        """The verdicts that arrived since the last call, oldest first."""
        arrived = []
        while self._evaluations:
            arrived.append(self._evaluations.popleft())
        return arrived

    @property
    def evaluating(self) -> EvaluationUnderWay | None:
        """How far the evaluator has come; None where it plays no games, or has not told it for a while."""
        latest = self._evaluating
        return latest[0] if latest is not None and time.monotonic() - latest[1] < _WORD_SECONDS else None

    def status(self) -> dict[str, Any]:
        """Fetches answered, versions encoded for them, bytes of the answers, and what was refused by reason: ``weights`` of the
        learner's status."""
        return {
            "fetches_total": self.fetches,
            "encodings_total": sum(each.encodings for each in self._published),
            "sent_bytes_total": self.sent_bytes,
            "refused_total": dict(self._server.malformed),
        }

    def close(self) -> None:
        """Stop serving and release the endpoints. Called by the thread that publishes."""
        self._stop.set()
        self._thread.close(timeout_seconds=5.0)
        self._publisher.close()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._server.socket, zmq.POLLIN)
        try:
            while not self._stop.is_set():
                poller.poll(100)
                while (arrived := self._server.receive()) is not None:
                    peer, message = arrived
                    try:
                        answer = self._answer(peer, message)
                    except MalformedMessage as error:
                        # The first of a kind is logged, the others are counted: a client must not fill the log.
                        if not self._server.malformed[error.reason]:
                            log.warning("a message to the weight server is refused: %s", error)
                        self._server.refuse(peer, error, message.kind)
                        continue
                    for each in answer:
                        if self._server.send(peer, each, copy=False):
                            self.sent_bytes += sum(map(len, each))
        finally:
            self._server.close()

    def _answer(self, peer: bytes, message: Message) -> list[Sequence[Part]]:
        """The messages that answer one. Raises MalformedMessage for one of an unknown kind."""
        fields = message.fields
        if message.kind == "want":
            part = self._published[bool(fields["averaged"])].part(peer, fields)
            return part if part is not None else self._announcement(peer, bool(fields["averaged"]), fields, (-1, -1))
        if message.kind == "fetch":
            self.fetches += 1
            epoch = int(fields.get("epoch", self._latest.key[0] if self._latest else 0))
            self.heard_epoch = max(self.heard_epoch, epoch)
            return self._announcement(peer, bool(fields["evaluation"]), fields, (epoch, int(fields["have"])))
        if message.kind == "evaluation":
            trained = self.latest.shapes if self.latest is not None else None
            self._evaluations.append(evaluation := Evaluation.from_message(message, trained))
            self._evaluating = None
            return [encode(Message("noted", {"version": evaluation.verdict.version}, {}))]
        if message.kind == "evaluating":
            self._evaluating = unpacked_document(EvaluationUnderWay, message), time.monotonic()
            return []
        raise MalformedMessage("kind", f"a weight server does not answer {message.kind}")

    def _announcement(
        self, peer: bytes, evaluation: bool, fields: Mapping[str, Scalar], have: tuple[int, int]
    ) -> list[Sequence[Part]]:
        """The version to fetch now, or that there is none but the one that the client has."""
        averaged = evaluation and self._evaluation is not None
        latest = self._evaluation if averaged else self._latest
        relay = self._relays.parent(fields)
        # "not equal" rather than "newer": after a restart from a checkpoint the latest may be a lower version, or the same one as
        # the former life's last; an actor that still has that would have its unrolls refused for ever.
        if latest is not None and latest.key != have:
            version = self._published[averaged].announced(latest)
            if version.key != have:
                return version.announcement(peer, relay)
        return [encode(Message("current", {"version": latest.key[1] if latest is not None else 0}, {}))]

"""The learner's side of weights: it announces versions and serves the latest; actors and the evaluator fetch when it suits them.

Nothing is queued: a notice says only "there is version v", a fetch gets whatever is latest when it is answered, and a client
that missed every notice still asks once every few seconds. A version of more than 4 MB comes in parts that its client asks for,
so that a client which reads slowly has no more than three of them waiting in the learner. An evaluator asks for the evaluation
weights (a moving average of the online ones where the job keeps one) and reports its verdict, with the weights it judged, over
the same socket.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import zmq
from torch import nn

from rljob.api.learner_status import EvaluationUnderWay
from rljob.threads import SupervisedThread
from rljob.weights.evaluations import Evaluation, unpacked_document
from rljob.weights.flat import Snapshot, Weights
from rljob.weights.published import PART_BYTES, PublishedVersions
from rljob.weights.relay import RelayTree
from rljob.wire import MalformedMessage, Message, Publisher, Server, ServerSecurity, encode
from rljob.wire.message import Part
from rljob.wire.schema import Scalar

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

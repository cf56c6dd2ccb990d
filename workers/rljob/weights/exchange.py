"""Weights on the wire: the learner announces versions and serves the latest; actors and the evaluator fetch when it suits them.

Nothing is queued: a notice says only "there is version v", a fetch gets whatever is latest when it is answered, and a client
that missed every notice still asks once every few seconds. An evaluator asks for the evaluation weights (a moving average of
the online ones where the job keeps one) and reports its verdict, with the weights it judged, over the same socket.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import zmq
from torch import nn

from rljob.api.learner_status import EvaluationUnderWay
from rljob.threads import SupervisedThread
from rljob.weights.evaluations import Evaluation, packed_document, uint8_column, unpacked_document
from rljob.weights.flat import OtherNetwork, Weights, WeightsProblem, snapshot
from rljob.wire import (
    Client,
    ClientSecurity,
    MalformedMessage,
    Message,
    Publisher,
    Server,
    ServerSecurity,
    Subscriber,
)

log = logging.getLogger(__name__)

# After so many versions in a row that this role can't read, it does not understand this learner.
_HOPELESS_VERSIONS = 5

_WORD_SECONDS = 30.0
"""An evaluator that has sent nothing for so long is gone: between two messages a game may start on a busy machine."""


class WeightServer:
    """Serves the latest weights from a thread of its own; the training loop only hands them over.

    ``weights`` and ``notice`` are endpoints to bind; the attributes of the same name say what they resolved to.
    ``publish`` belongs to one thread, the training loop's; everything else may be called from any.
    """

    def __init__(self, weights: str, notice: str, security: ServerSecurity | None = None) -> None:
        self._server = Server(weights, security)
        self._publisher = Publisher(notice, security)
        self.weights, self.notice = self._server.endpoint, self._publisher.endpoint
        self.latest: Weights | None = None
        """What was published last, by reference; None before the first."""
        self._evaluation: Weights | None = None
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
        the published ones as long as there never were others. The swap is one reference: a fetch sees the old or the new.
        """
        if evaluation is not None:
            self._evaluation = snapshot(evaluation, version, epoch, meta)
        self.latest = snapshot(module, version, epoch, meta)
        self._publisher.publish(version.to_bytes(8, "big"))

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
        """Fetches answered, bytes of weights in the answers, and what was refused by reason: ``weights`` of the learner's
        status."""
        refused = dict(self._server.malformed)
        return {"fetches_total": self.fetches, "sent_bytes_total": self.sent_bytes, "refused_total": refused}

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
                        answer = self._answer(message)
                    except MalformedMessage as error:
                        # The first of a kind is logged, the others are counted: a client must not fill the log.
                        if not self._server.malformed[error.reason]:
                            log.warning("a message to the weight server is refused: %s", error)
                        self._server.refuse(peer, error, message.kind)
                        continue
                    if answer is not None:
                        self._server.send(peer, answer)
        finally:
            self._server.close()

    def _answer(self, message: Message) -> Message | None:
        """The answer to one message, None where it needs none. Raises MalformedMessage for one of an unknown kind."""
        if message.kind == "fetch":
            self.fetches += 1
            for_evaluation = bool(message.fields["evaluation"])
            current = (self._evaluation if for_evaluation else None) or self.latest
            # "not equal" rather than "newer": after a restart from a checkpoint the latest may be a lower version, or the
            # same one as the former life's last; an actor that still has that would have its unrolls refused for ever.
            have = message.fields["have"], message.fields.get("epoch", current.epoch if current else 0)
            self.heard_epoch = max(self.heard_epoch, int(have[1]))
            if current is None or (current.version, current.epoch) == have:
                return Message("current", {"version": current.version if current else 0}, {})
            self.sent_bytes += len(current.buffer)
            return Message(
                "weights",
                {"version": current.version, "epoch": current.epoch, "digest": current.digest},
                {"buffer": current.buffer, "manifest": current.manifest},
            )
        if message.kind == "evaluation":
            trained = self.latest.shapes if self.latest is not None else None
            self._evaluations.append(evaluation := Evaluation.from_message(message, trained))
            self._evaluating = None
            return Message("noted", {"version": evaluation.verdict.version}, {})
        if message.kind == "evaluating":
            self._evaluating = unpacked_document(EvaluationUnderWay, message), time.monotonic()
            return None
        raise MalformedMessage("kind", f"a weight server does not answer {message.kind}")


class WeightClient:
    """Keeps one process up to date without ever making it wait. Used by one thread.

    ``poll`` costs microseconds when nothing has happened. One fetch is in flight at a time; a notice, or ``poll_seconds``
    without one, starts the next; a fetch unanswered for ``retry_seconds`` is sent again (the learner was away). ``answered``
    once the learner has answered any fetch. ``shapes``, once set, are those of the network that the weights are for.

    Epochs never go back: weights of an earlier one than those in use come from a learner that was superseded. They are passed
    over and counted in ``superseded``; the next fetch tells that learner of the later epoch.
    """

    def __init__(
        self,
        weights: str,
        notice: str,
        security: ClientSecurity | None = None,
        *,
        evaluation: bool = False,
        poll_seconds: float = 2.0,
        retry_seconds: float = 5.0,
    ) -> None:
        self._client = Client(weights, security)
        self._subscriber = Subscriber(notice, security)
        self._evaluation = evaluation
        self._poll_seconds, self._retry_seconds = poll_seconds, retry_seconds
        self._asked_at: float | None = None
        self._next_ask = 0.0
        self._outdated = False
        self.version = 0
        self.epoch = 0
        self.announced = 0
        self.digest_mismatches = 0
        self.unusable = 0
        self.superseded = 0
        self.shapes: Mapping[str, tuple[int, ...]] | None = None
        self._unusable_in_a_row = 0
        self._reported = 0
        self.noted = 0
        self.answered = False

    def poll(self) -> Weights | None:
        """Newly arrived, verified weights, or None. Damaged weights are counted and dropped: the version in use stays.

        Raises ``OtherNetwork`` for weights of another network than ``shapes``, and ``WeightsProblem`` when version after version
        can't be read.
        """
        now = time.monotonic()
        while (notice := self._subscriber.receive()) is not None:
            if len(notice) == 8:
                self.announced = int.from_bytes(notice, "big")
                if self.announced != self.version:
                    self._next_ask = now
        fresh = None
        while (message := self._client.receive(0.0)) is not None:
            fresh = self._accept(message, now) or fresh
        if self._asked_at is not None and now - self._asked_at > self._retry_seconds:
            self._asked_at = None
        if self._asked_at is None and now >= self._next_ask:
            fields = {"have": self.version, "epoch": self.epoch, "evaluation": self._evaluation}
            if self._client.send(Message("fetch", fields, {})):
                self._asked_at = now
            self._next_ask = now + self._poll_seconds
        return fresh

    def wait(self, timeout_seconds: float, stop: threading.Event | None = None) -> Weights | None:
        """As ``poll``, but up to ``timeout_seconds`` for weights other than those in use; for processes with time to spare."""
        deadline = time.monotonic() + timeout_seconds
        while (fresh := self.poll()) is None and time.monotonic() < deadline:
            if (stop or threading.Event()).wait(0.02):
                break
        return fresh

    def outdate(self) -> None:
        """After a long time without ``poll``: drop the weights of a fetch from before now, and fetch again."""
        self._outdated = self._asked_at is not None
        self._next_ask = 0.0

    def report(self, evaluation: Evaluation) -> bool:
        """Send a verdict to the learner; False when it could not be sent now. ``noted`` becomes its version when it has arrived,
        or when the learner refuses it, which is in the log: it would do so again."""
        self._reported = evaluation.verdict.version
        return self._client.send(evaluation.to_message())

    def tell(self, evaluating: EvaluationUnderWay) -> None:
        """Tell the learner how far an evaluation has come; there is no answer, and a message that is lost is not sent again."""
        self._client.send(Message("evaluating", {}, {"document": packed_document(evaluating)}))

    def close(self) -> None:
        self._client.close()
        self._subscriber.close()

    def _accept(self, message: Message, now: float) -> Weights | None:
        if message.kind == "noted":
            self.noted = int(message.fields["version"])
            return None
        if message.kind == "refused":
            log.warning("the weight server refused a request: %s", message.fields.get("reason"))
            if message.fields.get("kind") == "evaluation":
                self.noted = self._reported
                return None
        elif message.kind not in ("weights", "current"):
            self._client.count(MalformedMessage("kind", f"{message.kind} is no answer to a fetch"))
            return None
        self._asked_at = None
        self.answered = True
        if self._outdated:
            self._outdated, self._next_ask = False, now
            return None
        if message.kind != "weights":
            return None
        fields = message.fields
        if int(fields["epoch"]) < self.epoch:
            if not self.superseded:
                log.warning(
                    "weights of epoch %d are passed over: those in use are of epoch %d, so that learner was superseded",
                    fields["epoch"],
                    self.epoch,
                )
            self.superseded += 1
            self._next_ask = now + self._poll_seconds
            return None
        arrived = Weights(
            version=int(fields["version"]),
            epoch=int(fields["epoch"]),
            buffer=uint8_column(message, "buffer"),
            manifest=uint8_column(message, "manifest"),
            expected_digest=str(fields["digest"]),
        )
        try:
            arrived.verify()
        except WeightsProblem as problem:
            self.digest_mismatches += 1
            self._next_ask = now + self._poll_seconds
            log.warning("%s", problem)
            return None
        # Fetched once, whatever it is worth: only another version is worth another fetch.
        self.version, self.epoch = arrived.version, arrived.epoch
        try:
            arrived.check(self.shapes)
        except OtherNetwork:
            self.unusable += 1
            raise
        except WeightsProblem as problem:
            self.unusable += 1
            self._unusable_in_a_row += 1
            log.warning("%s; they are passed over", problem)
            if self._unusable_in_a_row >= _HOPELESS_VERSIONS:
                raise
            return None
        self._unusable_in_a_row = 0
        return arrived

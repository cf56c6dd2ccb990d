"""An actor's and an evaluator's side of weights: it fetches the newest version of the learner, in parts, from it or a relay. Each
part is checked against the digest that the learner announced."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import zmq
from numpy.typing import NDArray

from rljob.api.learner_status import EvaluationUnderWay
from rljob.weights.flat import Evaluation, OtherNetwork, Weights, WeightsProblem, packed_document, uint8_column
from rljob.weights.relay import RELAY_SECONDS, Relay
from rljob.wire import Client, ClientSecurity, MalformedMessage, Message, Scalar, Subscriber

_WINDOW: Final = 3
_LONGEST_PATIENCE_SECONDS: Final = 60.0


class Download:
    """The version that a ``weights`` message announces. Raises MalformedMessage where that contradicts itself.

    Three parts are under way at a time. When none has come for ``patience_seconds`` they are asked for again, and the patience
    doubles: a link that is only slow must not carry them twice. ``follows``: where there is one part alone, it comes by itself.
    ``heard_at`` and ``looks``: when a part came last, and how many times one was looked for since.
    """

    def __init__(self, message: Message, now: float, patience_seconds: float, *, follows: bool) -> None:
        fields = message.fields
        self.version = int(fields["version"])
        self._of = {name: fields[name] for name in ("version", "epoch", "averaged")}
        self._patience_seconds = patience_seconds
        size, self._part_bytes = int(fields["size"]), int(fields["part"])
        self._digests = message.columns["digests"]
        if self._digests.shape != (-(-size // self._part_bytes), 32):
            raise MalformedMessage(
                "contents", f"{size} bytes in parts of {self._part_bytes} with {len(self._digests)} digests"
            )
        self._buffer: NDArray[np.uint8] = np.empty(size, np.uint8)
        self._manifest = uint8_column(message, "manifest")
        self._missing = dict.fromkeys(range(len(self._digests)))
        self._asked = set(self._missing if follows and len(self._missing) == 1 else ())
        self.heard_at, self.looks = now, 0

    def is_of(self, message: Message) -> bool:
        """Whether a message is about this version."""
        return self._of.items() <= message.fields.items()

    @property
    def weights(self) -> Weights | None:
        """Once all parts are there."""
        epoch = int(self._of["epoch"])
        return None if self._missing else Weights(self.version, epoch, self._buffer, self._manifest)

    def take(self, index: int, part: NDArray[np.uint8], now: float) -> bool:
        """Put a part in its place; False where it is not the one that the learner announced."""
        self.heard_at, self.looks = now, 0
        if index not in self._missing:
            return True
        place = self._buffer[index * self._part_bytes : (index + 1) * self._part_bytes]
        if part.shape != place.shape or hashlib.sha256(part.data).digest() != self._digests[index].tobytes():
            return False
        place[:] = part
        del self._missing[index]
        self._asked.discard(index)
        return True

    def ask(self, send: Callable[[Message], bool], now: float) -> None:
        """Ask for parts until enough are under way, or ``send`` takes no more."""
        self.looks += 1
        if self._asked and now - self.heard_at > self._patience_seconds:
            self.again(now)
            self._patience_seconds = min(2 * self._patience_seconds, _LONGEST_PATIENCE_SECONDS)
        for index in self._missing if len(self._asked) < _WINDOW else ():
            if index not in self._asked:
                if len(self._asked) == _WINDOW or not send(Message("want", {**self._of, "index": index}, {})):
                    break
                self._asked.add(index)

    def again(self, now: float) -> None:
        """Ask for those under way once more."""
        self._asked.clear()
        self.heard_at, self.looks = now, 0


log = logging.getLogger(__name__)

# After so many versions in a row that this role can't read, it does not understand this learner.
_HOPELESS_VERSIONS = 5

_SLOW_RELAY_SECONDS = 30.0
"""So long a relay is waited for that says that a part is on its way: over a slow link nothing comes sooner from the learner."""


class WeightClient:
    """Keeps one process up to date without ever making it wait. Used by one thread.

    ``poll`` costs microseconds when nothing has happened. One fetch is in flight at a time; a notice, or ``poll_seconds``
    without one, starts the next; whatever is unanswered for ``retry_seconds`` is asked for again (the learner was away), parts
    that have come excepted. A learner that has a later version by then answers with that one. ``answered`` once the learner has
    answered any fetch. ``shapes``, once set, are those of the network that the weights are for.

    With a ``relay`` of its own it passes on what it gets to clients of the same ``node``, and takes parts from one of them, with
    the key ``of_relays``, where the learner says so. A relay that sends nothing for three seconds, no part for thirty, or a
    damaged one, is reported to the learner, which names another or has what is missing.

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
        relay: Relay | None = None,
        node: str = "",
        of_relays: ClientSecurity | None = None,
    ) -> None:
        self._client = Client(weights, security)
        self._relay, self._of_relays, self._evaluation = relay, of_relays, evaluation
        self._poll_seconds, self._retry_seconds = poll_seconds, retry_seconds
        self._where: dict[str, Scalar] = {"node": node, "serves": relay.endpoint} if relay is not None else {}
        self._parent: Client | None = None
        self._lost, self._relay_alive_at = "", 0.0
        self._subscriber = Subscriber(notice, security)
        self._asked_at: float | None = None
        self._next_ask = 0.0
        self._outdated = self.answered = False
        self._download: Download | None = None
        self.version = self.epoch = self.digest_mismatches = self.unusable = self.superseded = 0
        self.shapes: Mapping[str, tuple[int, ...]] | None = None
        self._unusable_in_a_row = self._reported = self.noted = 0

    def poll(self) -> Weights | None:
        """Newly arrived, verified weights, or None. Damaged weights are counted and dropped: the version in use stays.

        Raises ``OtherNetwork`` for weights of another network than ``shapes``, and ``WeightsProblem`` when version after version
        can't be read.
        """
        now = time.monotonic()
        while (notice := self._subscriber.receive()) is not None:
            if len(notice) == 8 and int.from_bytes(notice, "big") != self.version:
                self._next_ask = now
        fresh = None
        while (message := self._client.receive(0.0)) is not None:
            fresh = self._accept(message, now) or fresh
        while self._parent is not None and (message := self._parent.receive(0.0)) is not None:
            if message.kind == "part":
                fresh = self._take(message, now, self._parent) or fresh
            elif self._download is not None and message.fields.get("version") == self._download.version:
                self._relay_alive_at = now  # the part is on its way to it
            elif message.kind == "current":
                self._leave_relay("", now)  # it has gone on to a later version
        if self._asked_at is not None and now - self._asked_at > self._retry_seconds:
            self._asked_at = None
        if self._download is not None:
            silent_seconds = now - self._download.heard_at
            allowed = RELAY_SECONDS if now - self._relay_alive_at > RELAY_SECONDS else _SLOW_RELAY_SECONDS
            # A client that looks every few seconds has to look again, for its connection was made meanwhile.
            if self._parent is not None and silent_seconds > allowed and self._download.looks > 2:
                self._leave_relay(f"has sent nothing for {silent_seconds:.1f} s", now)
        if self._download is not None and not self._lost:
            self._download.ask((self._parent or self._client).send, now)
        elif self._asked_at is None and now >= self._next_ask:
            have = {"have": self.version, "epoch": self.epoch, "evaluation": self._evaluation}
            lost = {"lost": self._lost} if self._lost else {}
            if self._client.send(Message("fetch", {**have, **self._where, **lost}, {})):
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
        self._download = None
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
        for each in (self._client, self._subscriber, self._parent, self._relay):
            if each is not None:
                each.close()

    def _accept(self, message: Message, now: float) -> Weights | None:
        if message.kind == "noted":
            self.noted = int(message.fields["version"])
            return None
        if message.kind == "refused":
            log.warning("the weight server refused a request: %s", message.fields.get("reason"))
            if message.fields.get("kind") == "evaluation":
                self.noted = self._reported
                return None
            self._next_ask = now + self._poll_seconds
        elif message.kind == "part":
            return self._take(message, now, self._client)
        elif message.kind not in ("weights", "current"):
            self._client.count(MalformedMessage("kind", f"{message.kind} is no answer to a fetch"))
            return None
        self._asked_at = None
        self.answered = True
        if self._outdated:
            self._outdated, self._next_ask = False, now
            return None
        if message.kind != "weights":
            self._download, self._lost = None, ""
            return None
        return self._begin(message, now)

    def _begin(self, message: Message, now: float) -> Weights | None:
        """Fetch the version that is announced."""
        if int(message.fields["epoch"]) < self.epoch:
            if not self.superseded:
                log.warning(
                    "weights of epoch %d are passed over: those in use are of epoch %d, so that learner was superseded",
                    message.fields["epoch"],
                    self.epoch,
                )
            self.superseded += 1
            self._download, self._next_ask = None, now + self._poll_seconds
            return None
        if (message.fields["epoch"], message.fields["version"]) == (self.epoch, self.version):
            return None
        is_new = self._download is None or not self._download.is_of(
            message
        )  # each request for a part that is gone gets one
        if is_new or self._lost:
            relay, self._lost = str(message.fields.get("relay", "")), ""
            try:
                if is_new:
                    self._download = Download(message, now, self._retry_seconds, follows=not relay)
                    if self._relay is not None:
                        self._relay.expect(message)
                self._follow(relay)
            except (ValueError, zmq.ZMQError) as error:
                self._client.count(MalformedMessage("contents", str(error)))
        return self._finish(now)

    def _follow(self, relay: str) -> None:
        """Take parts from this relay, "" for none. Raises ValueError and ZMQError for one that is no endpoint."""
        if self._parent is not None and self._parent.endpoint != relay:
            self._parent.close()
            self._parent = None
        if relay and self._parent is None:
            self._parent = Client(relay, self._of_relays)

    def _leave_relay(self, why: str, now: float) -> None:
        """Ask the learner for the parts that are missing; where there is a reason, for another relay first."""
        if self._parent is not None and why:
            log.warning("relay %s %s; the learner is asked for another", self._parent.endpoint, why)
            self._lost, self._asked_at, self._next_ask = self._parent.endpoint, None, now
        self._follow("")
        if self._download is not None:
            self._download.again(now)

    def _take(self, message: Message, now: float, source: Client) -> Weights | None:
        """Put a part in its place. One that is damaged is asked for again, of the learner, whose own once nothing else comes."""
        if self._download is None or not self._download.is_of(message):
            return None  # of a version that was given up
        if self._download.take(int(message.fields["index"]), uint8_column(message, "buffer"), now):
            if self._relay is not None:
                self._relay.hold(message)
            return self._finish(now)
        self.digest_mismatches += 1
        why = f"has sent a part of weights version {message.fields['version']} that has not the digest announced"
        if source is self._parent:
            self._leave_relay(why, now)
        elif self.digest_mismatches == 1:
            log.warning("the learner %s; the version in use is kept", why)
        return None

    def _finish(self, now: float) -> Weights | None:
        """The version that has come whole, once; None before, and where it is of no use."""
        arrived = self._download.weights if self._download is not None else None
        if arrived is None:
            return None
        self._download = None
        # Fetched once, whatever it is worth: only another version is worth another fetch.
        self.version, self.epoch = arrived.version, arrived.epoch
        try:
            arrived.check(self.shapes)
        except WeightsProblem as problem:
            self.unusable += 1
            self._unusable_in_a_row += 1
            if isinstance(problem, OtherNetwork) or self._unusable_in_a_row >= _HOPELESS_VERSIONS:
                raise
            log.warning("%s; they are passed over", problem)
            return None
        self._unusable_in_a_row = 0
        return arrived

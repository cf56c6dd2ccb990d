"""The learner's side of a version: encoded and digested once, however many clients ask for it, in parts of 4 MB."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import zmq

from rljob.weights.flat import Snapshot, Weights
from rljob.wire import Message, decode_header, encode
from rljob.wire.message import Part
from rljob.wire.schema import Scalar

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
        self.parts = [
            [_shared(each) for each in encode(Message("part", {**of, "index": index}, {"buffer": part}))]
            for index, part in enumerate(parts)
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


def _shared(part: Part) -> Part:
    return zmq.Frame(part, copy=False) if len(part) >= zmq.COPY_THRESHOLD else part

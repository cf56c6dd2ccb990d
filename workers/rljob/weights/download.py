"""A client's side of a version: its parts as they arrive, each checked against the digest that the learner announced."""

import hashlib
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rljob.weights.evaluations import uint8_column
from rljob.weights.flat import Weights
from rljob.wire import MalformedMessage, Message

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

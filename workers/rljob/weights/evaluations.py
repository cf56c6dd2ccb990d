"""What an evaluator tells the learner: its verdicts, and how far the games of the next one have come, each as the document of
the learner's status."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from rljob.api.learner_status import Verdict
from rljob.api.status_document import Document, json_document
from rljob.strict_json import dumps
from rljob.weights.flat import Weights, WeightsProblem
from rljob.wire import MalformedMessage, Message

_EMPTY = np.zeros(0, np.uint8)
_Told = TypeVar("_Told", bound=Document)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An evaluator's ``verdict`` on one version. ``weights`` are the ones judged, None where they were not sent."""

    verdict: Verdict
    weights: Weights | None = None

    def to_message(self) -> Message:
        """As the evaluator sends it."""
        return Message(
            "evaluation",
            {},
            {
                "document": packed_document(self.verdict),
                "buffer": self.weights.buffer if self.weights else _EMPTY,
                "manifest": self.weights.manifest if self.weights else _EMPTY,
            },
        )

    @classmethod
    def from_message(cls, message: Message, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Self:
        """Read a verdict. ``shapes`` are those of the network being trained, where they are known.

        Raises MalformedMessage for what the schema allows and is nevertheless no verdict: figures that count nothing, and weights
        that no policy could be made of (`Weights.check`).
        """
        verdict = unpacked_document(Verdict, message)
        if not message.columns["buffer"].size:
            return cls(verdict)
        weights = Weights(verdict.version, 0, uint8_column(message, "buffer"), uint8_column(message, "manifest"))
        try:
            weights.check(shapes)
        except WeightsProblem as problem:
            raise MalformedMessage("contents", str(problem)) from None
        return cls(verdict, weights)


def packed_document(told: Document) -> NDArray[np.uint8]:
    """The column ``document`` of a message."""
    return np.frombuffer(dumps(told.to_document()).encode(), np.uint8)


def unpacked_document(kind: type[_Told], message: Message) -> _Told:
    """The document in a message. Raises MalformedMessage where it is none, or has figures that count nothing."""
    try:
        return kind.from_document(json_document(uint8_column(message, "document").tobytes()))
    except ValueError as error:
        raise MalformedMessage("contents", f"{message.kind}: {error}") from None


def uint8_column(message: Message, column: str) -> NDArray[np.uint8]:
    """The bytes of a column."""
    return message.columns[column].astype(np.uint8, copy=False)

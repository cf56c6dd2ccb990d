"""What can be wrong with a message, as a finite set of reasons."""

from typing import Final

REASONS: Final = frozenset(
    {
        "parts",  # too few, too many, or not byte buffers
        "header",  # not the msgpack header this version writes
        "version",  # written by another version of the wire format
        "kind",  # a kind of message that the schema does not know
        "field",  # a field is unknown, missing, of the wrong type or out of range
        "column",  # a column is unknown, missing or named twice
        "dtype",  # an element type that this column may not have
        "shape",  # a shape that contradicts the schema, a field or another column
        "size",  # bytes declared, bytes received and the limits disagree
        "codec",  # an unknown codec, or a buffer that does not decompress to what was declared
        "checksum",  # the buffer's CRC-32 is not the declared one
        "contents",  # allowed by all of the above, and nonsense to its receiver
    }
)


class MalformedMessage(ValueError):
    """A message that contradicts the schema, its own header or the limits, or that its receiver can make no sense of.

    `reason` is one of `REASONS`, so that counters keyed by it stay bounded whatever a sender invents; `detail` says
    what was found and what would be right, with anything the sender wrote cut to a few characters.
    """

    def __init__(self, reason: str, detail: str) -> None:
        assert reason in REASONS, reason
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


def quoted(value: object, limit: int = 40) -> str:
    """`repr` of something a sender wrote, cut so that it can stand in a log line or a reply."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."

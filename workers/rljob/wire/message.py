"""Messages as multipart buffers: `[header, buffer, buffer, ...]`, checked in full before anything is allocated.

The header is msgpack, at most 1,024 bytes: `[version, kind, {field: value}, [[name, dtype, shape, codec, raw_bytes,
crc32], ...]]`; buffer *i* holds column *i*. Element type, shape, raw size, received size and codec of each column must
agree with one another, with the schema and with the limits. The CRC-32 covers the buffer as sent, so that a compressed
buffer can be stored and forwarded as it came.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import zmq

from rljob.wire.column import Buffer, StoredColumn, check_stored, pack_column, unpack_column
from rljob.wire.errors import MalformedMessage, quoted
from rljob.wire.schema import CODES, KINDS, Kind, Scalar
from rljob.wire.version import WIRE_VERSION

HEADER_BYTES: Final = 1024

Array = npt.NDArray[np.generic]
Part = zmq.Frame | bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Bounds of one received message, beside those of the schema."""

    max_parts: int = 24
    """Parts, the header included."""
    max_header_bytes: int = HEADER_BYTES
    max_message_bytes: int = 1 << 29
    """Bytes of all columns together, as received and again once decompressed."""


DEFAULT: Final = MessageLimits()


@dataclass(frozen=True, slots=True)
class Message:
    """One decoded message. Arrays of a received message are read-only and own, or keep alive, their memory."""

    kind: str
    fields: Mapping[str, Scalar]
    columns: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message whose header is validated and whose columns are still as they were received.

    `buffers[i]` belongs to the i-th of `columns`, which describe them. Checksums and compression are verified by `column`,
    `verify` and `message`, not at construction.
    """

    kind: str
    fields: Mapping[str, Scalar]
    columns: Mapping[str, StoredColumn]
    buffers: tuple[Buffer, ...]

    def column(self, name: str) -> Array:
        """The column as a read-only array; raises `MalformedMessage` for a bad checksum or codec, `KeyError` for a
        name that the message does not have. Decodes anew at each call."""
        stored = self.columns[name]
        return unpack_column(name, stored, self.buffers[stored.index])

    def verify(self) -> None:
        """Checks every checksum without decompressing anything; raises `MalformedMessage("checksum")`."""
        for name, stored in self.columns.items():
            stored.verify(name, self.buffers[stored.index])

    def message(self) -> Message:
        """All columns decoded; raises `MalformedMessage`."""
        columns = {
            name: unpack_column(name, stored, self.buffers[stored.index]) for name, stored in self.columns.items()
        }
        return Message(self.kind, self.fields, columns)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers as received (compressed)."""
        return sum(map(len, self.buffers))

    def parts(self) -> list[Buffer]:
        """The message ready to be sent on, the buffers untouched."""
        return [_pack_header(self.kind, self.fields, self.columns), *self.buffers]

    def rekind(self, kind: str, extra: Mapping[str, Scalar]) -> list[Buffer]:
        """The same columns under another kind, with `extra` fields added (or replaced): only the header is packed anew.

        Raises `MalformedMessage` if the other kind does not allow these fields and columns.
        """
        target = _kind_of(kind, KINDS)
        fields = {**self.fields, **extra}
        target.check_fields(fields)
        if target.columns is not KINDS[self.kind].columns:
            for name, stored in self.columns.items():
                if name not in target.columns:
                    raise MalformedMessage("column", f"{kind} has no column {name}")
                target.columns[name].check(name, stored.dtype, stored.shape)
        target.check_columns(fields, {name: stored.shape for name, stored in self.columns.items()})
        return [_pack_header(kind, fields, self.columns), *self.buffers]


def encode(
    message: Message,
    *,
    compress: Collection[str] = (),
    deltas: Collection[str] = (),
    schema: Mapping[str, Kind] = KINDS,
) -> list[bytes | memoryview]:
    """The parts of `message`, with the columns named in `compress` as LZ4 blocks where that makes them smaller, those that are
    among `deltas` too of the differences of their rows.

    Arrays need not be contiguous; numpy scalars among the fields become plain ones. Large uncompressed columns are
    views of the caller's arrays: leave those unchanged until the parts have been sent. Raises `MalformedMessage` for a
    message that `decode` would refuse.
    """
    kind = _kind_of(message.kind, schema)
    fields = message.fields
    try:
        kind.check_fields(fields)
    except MalformedMessage:
        fields = {
            name: kind.fields[name].coerce(value) if name in kind.fields else value  # type: ignore[misc]
            for name, value in fields.items()
        }
        kind.check_fields(fields)
    columns: dict[str, StoredColumn] = {}
    buffers: list[bytes | memoryview] = []
    shapes: dict[str, tuple[int, ...]] = {}
    for name, array in message.columns.items():
        column = kind.columns.get(name)
        if column is None:
            raise MalformedMessage("column", f"{message.kind} has no column {quoted(name)}")
        code = CODES.get(array.dtype)
        if code is None:
            raise MalformedMessage("dtype", f"{name} has {array.dtype}; it must be one of {sorted(column.dtypes)}")
        column.check(name, code, array.shape)
        shapes[name] = array.shape
        columns[name], buffer = pack_column(
            len(buffers), code, array, compressed=name in compress, delta=name in deltas
        )
        buffers.append(buffer)
    kind.check_columns(fields, shapes)
    return [_pack_header(message.kind, fields, columns), *buffers]


def decode(parts: Sequence[Part], limits: MessageLimits = DEFAULT, *, schema: Mapping[str, Kind] = KINDS) -> Message:
    """The message of these parts; raises `MalformedMessage` and nothing else, whatever the bytes are."""
    return decode_header(parts, limits, schema=schema).message()


def decode_header(
    parts: Sequence[Part], limits: MessageLimits = DEFAULT, *, schema: Mapping[str, Kind] = KINDS
) -> RawMessage:
    """Validates the header against the schema, the limits and the sizes of the buffers; decodes no column.

    The buffers are kept, not copied. Raises `MalformedMessage`.
    """
    if not 1 <= len(parts) <= limits.max_parts:
        raise MalformedMessage("parts", f"{len(parts)} parts; 1..{limits.max_parts} are allowed")
    buffers = tuple([part if type(part) is bytes else _bytes_of(part) for part in parts])
    name, fields, descriptions = _unpack_header(buffers[0], limits.max_header_bytes)
    kind = _kind_of(name, schema)
    kind.check_fields(fields)
    if len(descriptions) != len(buffers) - 1:
        raise MalformedMessage("parts", f"{len(buffers) - 1} buffers for {len(descriptions)} columns")
    columns: dict[str, StoredColumn] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    received = total = 0
    for index, description in enumerate(descriptions):
        column_name, stored = check_stored(kind, index, description, len(buffers[index + 1]))
        if column_name in columns:
            raise MalformedMessage("column", f"{column_name} is there twice")
        columns[column_name] = stored
        shapes[column_name] = stored.shape
        total += stored.raw_bytes
        received += len(buffers[index + 1])
    if total > limits.max_message_bytes or received > limits.max_message_bytes:
        raise MalformedMessage("size", f"{max(total, received)} bytes; {limits.max_message_bytes} are allowed")
    kind.check_columns(fields, shapes)
    return RawMessage(name, fields, columns, buffers[1:])


def _kind_of(name: object, schema: Mapping[str, Kind]) -> Kind:
    kind = schema.get(name) if type(name) is str else None
    if kind is None:
        raise MalformedMessage("kind", f"{quoted(name)} is unknown")
    return kind


def _bytes_of(part: Part) -> Buffer:
    try:
        view = part.buffer if isinstance(part, zmq.Frame) else memoryview(part)
        return view if view.format == "B" and view.ndim == 1 and view.contiguous else view.cast("B")
    except (TypeError, ValueError) as error:
        raise MalformedMessage("parts", f"a part is {type(part).__name__}, not a plain byte buffer") from error


def _pack_header(kind: str, fields: Mapping[str, Scalar], columns: Mapping[str, StoredColumn]) -> bytes:
    described = [(name, c.dtype, c.shape, c.codec, c.raw_bytes, c.crc32) for name, c in columns.items()]
    header: bytes = msgpack.packb((WIRE_VERSION, kind, dict(fields), described))
    if len(header) > HEADER_BYTES:
        raise MalformedMessage("header", f"{kind} needs {len(header)} bytes of header; {HEADER_BYTES} are allowed")
    return header


def _unpack_header(header: Buffer, max_bytes: int) -> tuple[str, dict[str, Scalar], tuple[object, ...]]:
    if len(header) > max_bytes:
        raise MalformedMessage("header", f"{len(header)} bytes; {max_bytes} are allowed")
    try:
        content = msgpack.unpackb(
            header,
            raw=False,
            use_list=False,
            strict_map_key=True,
            max_str_len=256,
            max_bin_len=0,
            max_array_len=32,
            max_map_len=32,
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        # Every failure of msgpack 1.x is one of these; the sender's bytes are not repeated.
        raise MalformedMessage("header", f"not msgpack within the limits ({type(error).__name__})") from error
    if type(content) is not tuple or len(content) != 4:
        raise MalformedMessage("header", "not an array of [version, kind, fields, columns]")
    version, kind, fields, columns = content
    if type(version) is not int or version != WIRE_VERSION:
        raise MalformedMessage("version", f"{quoted(version)}; this side speaks {WIRE_VERSION}")
    if type(kind) is not str or type(fields) is not dict or type(columns) is not tuple:
        raise MalformedMessage("header", "not an array of [version, kind, fields, columns]")
    return kind, fields, columns


def packed(rows: Sequence[Mapping[str, float]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The field ``names``, of the first 16 names in the rows one a line, and the column ``metrics`` f8 [rows, names], NaN where
    a row lacks one."""
    names = list(dict.fromkeys(name for row in rows for name in row))[:16]
    table = np.array([[row.get(name, np.nan) for name in names] for row in rows], np.float64)
    return {"names": "\n".join(names)}, {"metrics": table.reshape(len(rows), len(names))}


def unpacked(message: Message, count: int) -> list[dict[str, float]]:
    """The ``count`` rows of a message. Raises ``MalformedMessage`` for what ``packed`` does not make."""
    names = [name for name in str(message.fields.get("names", "")).split("\n") if name]
    table = message.columns.get("metrics", np.zeros((count, 0)))
    if (
        not all(name.isascii() and name.isprintable() for name in names)
        or table.shape != (count, len(names))
        or not (np.isnan(table) | (np.abs(table) <= 1e15)).all()  # a sum over thousands of them is still finite
    ):
        raise MalformedMessage("contents", "what an environment reports has no name to be shown, or is no number")
    return [{name: value for name, value in zip(names, row, strict=True) if value == value} for row in table.tolist()]

"""Well-formed messages of every kind and damage to them, for tests of what a receiver makes of either."""

from collections.abc import Callable
from zlib import crc32

import msgpack
import numpy as np
from rljob.wire.message import Message, encode
from rljob.wire.schema import DTYPES, KINDS, Column, Field, Scalar

_ATOMS: list[object] = [
    None, True, False, 0, 1, -1, 255, 256, 1 << 20, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1,
    0.0, float("nan"), float("inf"), "", "u1", "f8", "O", "|O", "frames", "chunk", "x" * 300, b"", b"u1", [], {}, [0],
    [1 << 40, 0], {"": 0}, [[[[]]]], msgpack.Timestamp(1, 2), msgpack.ExtType(5, b"12345"),
]  # fmt: skip


def _field(field: Field, name: str) -> Scalar:
    if field.type is bool:
        return True
    if field.type is float:
        return 0.5
    if field.type is int:
        return max(3, field.low)
    return min(field.choices) if field.choices else f"{name}-7"


def _column(column: Column, rows: int, generator: np.random.Generator) -> np.ndarray:
    dtype = DTYPES[max(column.dtypes)]  # u1 rather than f4 for frames
    shape = (rows, *[column.width or 4] * (max(column.min_ndim, min(column.max_ndim, 3)) - 1))
    return generator.integers(0, 3, shape).astype(dtype)


def well_formed(kind: str, rows: int = 5, optional: bool = True, seed: int = 0) -> Message:
    """A message of that kind which the schema allows, made from the schema itself."""
    generator = np.random.default_rng(seed)
    spec = KINDS[kind]
    labels = {column.rows for column in spec.columns.values()}
    fields = {name: rows if name in labels else _field(field, name) for name, field in spec.fields.items()}
    columns = {
        name: _column(column, rows, generator)
        for name, column in spec.columns.items()
        if optional or not column.optional
    }
    return Message(kind, fields, columns)


def seeds(make: Callable[..., Message] = well_formed) -> list[list[bytes]]:
    """Two encodings of every kind of message."""
    result = []
    for kind in sorted(KINDS):
        message = make(kind, 40)
        result += [[bytes(p) for p in encode(message, compress=c)] for c in ((), tuple(message.columns))]
    return result


def mutate_bytes(parts: list[bytes], generator: np.random.Generator) -> list[bytes]:
    """Flips, cuts, doublings and exchanges of raw bytes and whole parts."""
    parts = list(parts)
    for _ in range(generator.integers(1, 4)):
        index = int(generator.integers(len(parts)))
        part = bytearray(parts[index])
        at = int(generator.integers(len(part) + 1))
        match generator.integers(7):
            case 0 if part:
                part[at % len(part)] ^= 1 << int(generator.integers(8))
            case 1:
                del part[at:]
            case 2:
                part[at:at] = generator.bytes(int(generator.integers(1, 9)))
            case 3:
                part = bytearray(generator.bytes(int(generator.integers(0, 600))))
            case 4:
                parts.insert(index, parts[int(generator.integers(len(parts)))])
                continue
            case 5 if len(parts) > 1:
                del parts[index]
                continue
            case _:
                other = int(generator.integers(len(parts)))
                parts[index], parts[other] = parts[other], parts[index]
                continue
        parts[index] = bytes(part)
    return parts


def mutate_header(parts: list[bytes], generator: np.random.Generator) -> list[bytes]:
    """Replaces one value somewhere in the header and packs it again, so that the checks behind msgpack are reached."""
    header = msgpack.unpackb(parts[0])
    node: list | dict = header
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = keys[int(generator.integers(len(keys)))]
        child = node[key]
        if isinstance(child, list | dict) and child and generator.random() < 0.85:
            node = child
            continue
        if isinstance(child, int) and not isinstance(child, bool) and generator.random() < 0.5:
            node[key] = child + int(generator.integers(-2, 3))
        else:
            node[key] = _ATOMS[int(generator.integers(len(_ATOMS)))]
        break
    try:
        return [msgpack.packb(header), *parts[1:]]
    except OverflowError:  # one more than the largest integer
        return parts


def mutate_block(parts: list[bytes], generator: np.random.Generator) -> list[bytes]:
    """Damages a buffer and mends its checksum, so that the decompressor is reached."""
    if len(parts) == 1:
        return parts
    index = int(generator.integers(1, len(parts)))
    part = bytearray(parts[index])
    if not part:
        return parts
    for _ in range(generator.integers(1, 5)):
        part[int(generator.integers(len(part)))] = int(generator.integers(256))
    header = msgpack.unpackb(parts[0])
    header[3][index - 1][5] = crc32(part)
    return [msgpack.packb(header), *parts[1:index], bytes(part), *parts[index + 1 :]]


MUTATIONS = (mutate_bytes, mutate_header, mutate_block)

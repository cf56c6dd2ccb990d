"""One column: an array as a flat little-endian buffer, plain or as an LZ4 block, of its rows or of their differences."""

import sys
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import lz4.block
import numpy as np
import numpy.typing as npt

from rljob.wire.errors import MalformedMessage, quoted
from rljob.wire.schema import DTYPES, Kind

assert sys.byteorder == "little", "the wire format is little-endian and so must be the machine"

Buffer = bytes | memoryview

PLAIN: Final = 0
LZ4: Final = 1
DELTA: Final = 2
"""An LZ4 block of the first row, and of each other one XOR the row before."""

# A byte of an LZ4 block extends a match by at most 255 bytes, so no honest block expands further than this. The bound
# makes a sender pay for every byte it wants allocated.
_LZ4_EXPANSION: Final = 255
# Below this, an LZ4 block saves less than its call costs.
_LZ4_MIN_BYTES: Final = 128
# Small arrays are copied: a few hundred bytes cost less than keeping a view and its array alive.
_COPY_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """The header's description of one column: which buffer, what it decodes to, and the CRC-32 of the buffer."""

    index: int
    dtype: str
    shape: tuple[int, ...]
    codec: int
    raw_bytes: int
    crc32: int

    def verify(self, name: str, buffer: Buffer) -> None:
        """Raises `MalformedMessage("checksum")` unless `buffer` is what the sender sent."""
        found = crc32(buffer)
        if found != self.crc32:
            raise MalformedMessage("checksum", f"{name} has CRC-32 {found:#010x}, declared {self.crc32:#010x}")


def pack_column(
    index: int, code: str, array: npt.NDArray[np.generic], *, compressed: bool, delta: bool = False
) -> tuple[StoredColumn, Buffer]:
    """The description and the buffer of `array`; LZ4 only if asked for and smaller than the plain bytes, `delta` only where there
    are rows that differ by more than a number.

    A plain buffer of more than 4 kB is a view of `array` where that is C-contiguous.
    """
    raw_bytes = array.nbytes
    codec = PLAIN
    buffer: Buffer = array.tobytes() if raw_bytes <= _COPY_BYTES else np.ascontiguousarray(array).data.cast("B")
    if compressed and raw_bytes >= _LZ4_MIN_BYTES:
        tried = DELTA if delta and _has_rows(array.shape) else LZ4
        rows = _differences(array) if tried == DELTA else buffer
        block: bytes = lz4.block.compress(rows, mode="default", store_size=False)
        if len(block) < raw_bytes:
            buffer, codec = block, tried
    return StoredColumn(index, code, array.shape, codec, raw_bytes, crc32(buffer)), buffer


def check_stored(kind: Kind, index: int, description: object, buffer_bytes: int) -> tuple[str, StoredColumn]:
    """Validates one entry of the header's column list against the schema and the size of its buffer.

    After this, allocating `raw_bytes` is safe. Raises `MalformedMessage`.
    """
    if type(description) is not tuple or len(description) != 6:
        raise MalformedMessage("header", "a column is not [name, dtype, shape, codec, raw_bytes, crc32]")
    name, dtype, shape, codec, raw_bytes, checksum = description
    column = kind.columns.get(name) if type(name) is str else None
    if column is None:
        raise MalformedMessage("column", f"{quoted(name)} is unknown; the columns are {sorted(kind.columns)}")
    if type(dtype) is not str:
        raise MalformedMessage("dtype", f"{name} has {quoted(dtype)}; it must be one of {sorted(column.dtypes)}")
    if type(shape) is not tuple:
        raise MalformedMessage("shape", f"{name} has {quoted(shape)}; it must be an array of extents")
    if type(raw_bytes) is not int or type(checksum) is not int or not 0 <= checksum < 1 << 32:
        raise MalformedMessage("header", f"{name}: raw_bytes and crc32 must be unsigned integers")
    needed = column.check(name, dtype, shape)
    if raw_bytes != needed:
        raise MalformedMessage("size", f"{name} declares {raw_bytes} bytes; {dtype}{list(shape)} needs {needed}")
    # `type` first: True and 1.0 equal 1 and would pass a comparison alone.
    if type(codec) is not int or codec not in (PLAIN, LZ4, DELTA):
        raise MalformedMessage("codec", f"{name} has codec {quoted(codec)}; it must be {PLAIN}, {LZ4} or {DELTA}")
    if codec == DELTA and not _has_rows(shape):
        raise MalformedMessage("codec", f"{name} has codec {DELTA}, of differences of rows, and no rows: {list(shape)}")
    if codec == PLAIN and buffer_bytes != raw_bytes:
        raise MalformedMessage("size", f"{name} has {buffer_bytes} bytes; {raw_bytes} are declared")
    if codec != PLAIN and not 0 < buffer_bytes < raw_bytes <= buffer_bytes * _LZ4_EXPANSION:
        raise MalformedMessage("size", f"{name} has {buffer_bytes} bytes of LZ4 for {raw_bytes}; no block expands so")
    return name, StoredColumn(index, dtype, shape, codec, raw_bytes, checksum)


def unpack_column(name: str, stored: StoredColumn, buffer: Buffer) -> npt.NDArray[np.generic]:
    """The array that `check_stored` described, read-only; a plain column is a view of `buffer`. Raises
    `MalformedMessage` if the checksum or the block is wrong."""
    stored.verify(name, buffer)
    if stored.codec != PLAIN:
        try:
            buffer = lz4.block.decompress(buffer, uncompressed_size=stored.raw_bytes, return_bytearray=True)
        except lz4.block.LZ4BlockError as error:
            raise MalformedMessage("codec", f"{name} is not an LZ4 block of {stored.raw_bytes} bytes") from error
        if len(buffer) != stored.raw_bytes:
            raise MalformedMessage("codec", f"{name} decompresses to {len(buffer)} bytes, not {stored.raw_bytes}")
    if stored.codec == DELTA:
        rows = _rows(buffer, stored.shape[0])
        for row in range(1, len(rows)):
            np.bitwise_xor(rows[row], rows[row - 1], out=rows[row])
    array = np.frombuffer(buffer, DTYPES[stored.dtype])
    if stored.dtype == "b1" and array.size and array.view(np.uint8).max() > 1:
        # Any other byte would make an array on which `==` and `~` disagree.
        raise MalformedMessage("codec", f"{name} has bytes other than 0 and 1 in a b1 column")
    array.flags.writeable = False
    return array.reshape(stored.shape)


def _has_rows(shape: tuple[int, ...]) -> bool:
    """Whether there are several rows of several numbers each."""
    return len(shape) > 1 and shape[0] > 1


def _rows(buffer: Buffer | bytearray, count: int) -> npt.NDArray[np.generic]:
    """`buffer` as `count` rows, of eight bytes at once where that comes out even."""
    size = len(buffer) // count
    return np.frombuffer(buffer, np.uint64 if size % 8 == 0 else np.uint8).reshape(count, -1)


def _differences(array: npt.NDArray[np.generic]) -> Buffer:
    """Each row XOR the one before, bit for bit."""
    rows = _rows(np.ascontiguousarray(array).data.cast("B"), len(array))
    found = rows.copy()
    np.bitwise_xor(rows[1:], rows[:-1], out=found[1:])
    return found.data.cast("B")

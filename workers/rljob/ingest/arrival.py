"""From a received or logged message to a chunk or an unroll that may be stored."""

from __future__ import annotations

import numpy as np

from rljob.experience import Chunk, ChunkLayout, InvalidChunk, Unroll, UnrollLayout
from rljob.wire import MalformedMessage, RawMessage

_SMALL_COLUMNS = ("obs_at", "boot_at", "action", "ret", "disc", "prio", "flags")


def read_chunk(raw: RawMessage, layout: ChunkLayout, *, with_frames: bool) -> Chunk:
    """Decode and check a chunk message; raises ``InvalidChunk`` or ``MalformedMessage``.

    Without frames only the small columns are decoded. The frames' checksum, shape and type are checked all the same, so
    that a chunk is refused here, where its sender can be told, and not by a learner that it is forwarded to; the array
    in ``frames`` is then a placeholder of the right shape that holds zeros and no memory.
    """
    missing = [name for name in ("frames", *_SMALL_COLUMNS) if not raw.has(name)]
    if missing:
        raise InvalidChunk(f"chunk lacks {', '.join(missing)}")
    columns = {name: raw.column(name) for name in _SMALL_COLUMNS}
    if with_frames:
        columns["frames"] = raw.column("frames")
    else:
        stored = raw.header.columns["frames"]
        dtype = np.dtype({"u1": np.uint8, "f4": np.float32}.get(stored.dtype, np.void))
        columns["frames"] = np.broadcast_to(np.zeros((), dtype), stored.shape)
    chunk = Chunk.from_parts(raw.fields, columns)
    chunk.check(layout)
    return chunk


def read_unroll(raw: RawMessage, layout: UnrollLayout) -> Unroll:
    """Decode and check an unroll message; raises ``InvalidChunk`` or ``MalformedMessage``."""
    message = raw.message()
    unroll = Unroll.from_parts(message.fields, message.columns)
    unroll.check(layout)
    return unroll


__all__ = ["InvalidChunk", "MalformedMessage", "read_chunk", "read_unroll"]

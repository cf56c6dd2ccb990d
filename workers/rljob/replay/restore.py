"""Warm restart: the table, the counters and the priorities as the log has them."""

import logging
import struct
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TypeVar

import lz4.block
import numpy as np
import redis

from rljob.experience import InvalidSegment, Segment
from rljob.ingest.table import read_segment
from rljob.replay.chunk_log import ChunkLog
from rljob.replay.redis_client import in_words
from rljob.replay.table import ReplayTable
from rljob.wire import MalformedMessage, RawMessage

log = logging.getLogger(__name__)

GENERATION_JUMP = 1 << 20
"""Added to the generation counter at each restart, so that no update meant for a chunk that was lost with the previous
process can meet a new chunk of the same generation."""

_CHUNKS_PER_SLICE = 64
_HEADER = struct.Struct("<dIQ")
_MAX_SNAPSHOT_BYTES = 1 << 32
_RETRY_SECONDS = 0.05

T = TypeVar("T")


def patiently(read: Callable[[], T], patience_seconds: float) -> Generator[list[int], None, T]:
    """What ``read`` answers, asked again while it raises ``redis.RedisError``, which is passed on after ``patience_seconds``.

    Yields between two attempts, so that the caller can do something else meanwhile; an empty list, as a step of a restore
    that had nothing to leave out.
    """
    deadline = time.monotonic() + patience_seconds
    said = False
    while True:
        try:
            return read()
        except redis.RedisError as error:
            if time.monotonic() > deadline:
                raise
            if not said:
                said = True
                log.warning("replay log: %s while the log is read; trying again", in_words(error))
        yield []
        time.sleep(_RETRY_SECONDS)


def restore_chunks(table: ReplayTable, chunk_log: ChunkLog, patience_seconds: float) -> Iterator[list[int]]:
    """Fill an empty table from the log, a slice at a time, oldest first; then apply the snapshot of weights.

    Yields after each slice the generations that could not be kept: damaged, of another layout, or without room in a
    table that has become smaller. A slice that can't be read is tried again for ``patience_seconds``, with an empty yield after
    each attempt; then its ``redis.RedisError`` is raised, with all before it stored. Raises ``DamagedLog``.
    """
    generations = yield from patiently(chunk_log.index, patience_seconds)
    snapshot = yield from patiently(chunk_log.weights, patience_seconds)
    for start in range(0, len(generations), _CHUNKS_PER_SLICE):
        some = generations[start : start + _CHUNKS_PER_SLICE]
        raws = yield from patiently(partial(chunk_log.chunks, some), patience_seconds)
        dropped: list[int] = []
        found: dict[int, tuple[Segment, RawMessage]] = {}
        for generation, raw in zip(some, raws, strict=True):
            try:
                if raw is None:
                    raise InvalidSegment("missing or damaged")
                found[generation] = read_segment(raw, table.layout, with_frames=False), raw
            except (InvalidSegment, MalformedMessage) as problem:
                log.warning("replay log: chunk %d is left out: %s", generation, problem)
                dropped.append(generation)
        evicted = table.insert(list(found.values()), restored=list(found))
        yield dropped + [chunk.generation for chunk in evicted]
    if snapshot is not None:
        _apply_weights(table, snapshot, table.layout.length)


def pack_weights(table: ReplayTable) -> bytes:
    """The sampling weights of a whole table: exponent, generations, steps and f4 weights, as one LZ4 block.

    Takes about 1 ms per million transitions to collect; the rest is compression.
    """
    chunks = [table.chunk(ordinal) for ordinal in range(table.oldest, table.head)]
    generations = np.array([chunk.generation for chunk in chunks], np.uint32)
    steps = np.array([chunk.steps for chunk in chunks], np.uint32)
    length = table.layout.length
    leaves, firsts = table.selector.tree.leaves, [chunk.slot * length for chunk in chunks]
    weights = [
        leaves[first : first + chunk.steps].astype(np.float32) for first, chunk in zip(firsts, chunks, strict=True)
    ]
    body = b"".join([generations.tobytes(), steps.tobytes(), *(w.tobytes() for w in weights)])
    header = _HEADER.pack(table.selector.exponent, len(chunks), len(body))
    return header + bytes(lz4.block.compress(body, store_size=False))


def _apply_weights(table: ReplayTable, snapshot: bytes, length: int) -> None:
    """Restore the weights of the chunks that the snapshot knows; all others keep those of their own first priorities."""
    try:
        exponent, count, size = _HEADER.unpack_from(snapshot)
        if exponent != table.selector.exponent:
            log.info("replay log: the priority exponent has changed, initial priorities are used")
            return
        if not 8 * count <= size <= _MAX_SNAPSHOT_BYTES:
            raise ValueError("impossible size")
        body = lz4.block.decompress(snapshot[_HEADER.size :], uncompressed_size=size)
        generations = np.frombuffer(body, np.uint32, count)
        steps = np.frombuffer(body, np.uint32, count, 4 * count)
        weights = np.frombuffer(body, np.float32, offset=8 * count).astype(np.float64)
        if int(steps.sum()) != len(weights) or not np.isfinite(weights).all() or (weights < 0).any():
            raise ValueError("contradictory contents")
    except (struct.error, ValueError, lz4.block.LZ4BlockError) as error:
        log.warning("replay log: the snapshot of priorities is not usable (%s), initial priorities are used", error)
        return
    starts = np.concatenate([[0], np.cumsum(steps, dtype=np.int64)])
    where = {int(generation): i for i, generation in enumerate(generations)}
    for ordinal in range(table.oldest, table.head):
        chunk = table.chunk(ordinal)
        i = where.get(chunk.generation)
        if i is not None and int(steps[i]) == chunk.steps:
            table.selector.tree.update_range(chunk.slot * length, weights[starts[i] : starts[i + 1]])

"""Experience: what an actor records, as self-contained pieces of a stream: chunks of n-step transitions, or unrolls."""

from rljob.experience.builder import ChunkBuilder
from rljob.experience.chunk import LIFE_LOST, TERMINATED, TRUNCATED, Chunk, InvalidChunk
from rljob.experience.layout import ChunkLayout
from rljob.experience.unroll import Unroll, UnrollLayout
from rljob.experience.unroll_builder import UnrollBuilder

__all__ = [
    "LIFE_LOST",
    "TERMINATED",
    "TRUNCATED",
    "Chunk",
    "ChunkBuilder",
    "ChunkLayout",
    "InvalidChunk",
    "Unroll",
    "UnrollBuilder",
    "UnrollLayout",
]

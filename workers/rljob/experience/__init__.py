"""Experience: what an actor records, as self-contained chunks with n-step returns and initial priorities."""

from rljob.experience.builder import ChunkBuilder
from rljob.experience.chunk import LIFE_LOST, TERMINATED, TRUNCATED, Chunk, InvalidChunk
from rljob.experience.layout import ChunkLayout

__all__ = ["LIFE_LOST", "TERMINATED", "TRUNCATED", "Chunk", "ChunkBuilder", "ChunkLayout", "InvalidChunk"]

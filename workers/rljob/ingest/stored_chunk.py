"""A chunk or unroll in a table, as it arrived."""

from __future__ import annotations

from dataclasses import dataclass

from rljob.wire import RawMessage


@dataclass(frozen=True, slots=True, eq=False)
class StoredChunk:
    """One accepted chunk as it arrived (columns still compressed) and where it went.

    ``ordinal`` counts the chunks of this table since it was built: stored ordinals are consecutive, so that readers
    follow the table with a plain cursor. ``generation`` counts the chunks of the whole run and is what a slot holds.
    """

    ordinal: int
    generation: int
    slot: int
    steps: int
    nbytes: int
    raw: RawMessage

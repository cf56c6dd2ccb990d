"""How the columns of what an actor sends are compressed: as they are, or as the differences of neighbouring frames.

Differences are smaller where most of a picture stays as it is and what stands still is rich in detail, and larger where
everything moves or the picture is plain. Which it is is seen in the first segments.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from numpy.typing import NDArray

from rljob.wire.column import pack_column, unpack_column
from rljob.wire.schema import CODES

log = logging.getLogger(__name__)

TRIED_SEGMENTS: Final = 8
_LEAST_ROW_BYTES: Final = 64
"""A pass over smaller rows costs more than its bytes are worth."""
_WORTH_BYTES: Final = 0.95
_WORTH_SECONDS: Final = 2.0


class Compression:
    """Which of the ``columns`` that are compressed go as ``deltas``.

    ``way``: LZ4 none, Delta all, Auto those for which that was smaller by a twentieth in the first segments, and took this
    processor at most twice as long, packing and unpacking. For one thread; several sessions may share it.
    """

    def __init__(self, columns: Sequence[str] = (), way: str = "LZ4") -> None:
        self.columns = tuple(columns)
        self.deltas: frozenset[str] = frozenset(columns) if way == "Delta" else frozenset()
        self._left = TRIED_SEGMENTS if way == "Auto" and columns else 0
        self._bytes: dict[str, list[float]] = {}
        self._seconds: dict[str, list[float]] = {}

    def look(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """See the columns of a segment that is about to be sent; only the first ones are looked at."""
        if not self._left:
            return
        self._left -= 1
        for name in self.columns:
            array = columns.get(name)
            if array is None or array.ndim < 2 or len(array) < 2 or array[0].nbytes < _LEAST_ROW_BYTES:
                continue
            for way in (0, 1):
                began = time.thread_time()
                stored, buffer = pack_column(0, CODES[array.dtype], array, compressed=True, delta=way == 1)
                unpack_column(name, stored, buffer)
                self._seconds.setdefault(name, [0.0, 0.0])[way] += time.thread_time() - began
                self._bytes.setdefault(name, [0.0, 0.0])[way] += len(buffer)
        if not self._left:
            self._decide()

    def _decide(self) -> None:
        found = set()
        for name, (plain, delta) in self._bytes.items():
            seconds, delta_seconds = self._seconds[name]
            worth = delta < _WORTH_BYTES * plain and delta_seconds < _WORTH_SECONDS * seconds
            log.info(
                "%s: as differences of frames %.1f kB a segment, %.0f us; as they are %.1f kB, %.0f us: %s",
                name,
                delta / TRIED_SEGMENTS / 1e3,
                1e6 * delta_seconds / TRIED_SEGMENTS,
                plain / TRIED_SEGMENTS / 1e3,
                1e6 * seconds / TRIED_SEGMENTS,
                "differences from now on" if worth else "as they are",
            )
            if worth:
                found.add(name)
        self.deltas = frozenset(found)

"""How the columns of what an actor sends are compressed: as they are, or as the differences of neighbouring frames.

Differences are smaller where most of a picture stays as it is and what stands still is rich in detail, and larger where
everything moves or the picture is plain. Which it is is seen in the first segments.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from numpy.typing import NDArray

from rljob.wire.column import pack_column
from rljob.wire.schema import CODES

log = logging.getLogger(__name__)

TRIED_SEGMENTS: Final = 8
_LEAST_ROW_BYTES: Final = 64
"""A pass over smaller rows costs more than its bytes are worth."""
_WORTH_BYTES: Final = 0.95


class Compression:
    """Which of the ``columns`` that are compressed go as ``deltas``.

    ``way``: LZ4 none, Delta all, Auto those for which that was smaller by a twentieth in the first segments; what is smaller is
    packed sooner, too. For one thread; several sessions may share it.
    """

    def __init__(self, columns: Sequence[str] = (), way: str = "LZ4") -> None:
        self.columns = tuple(columns)
        self.deltas: frozenset[str] = frozenset(columns) if way == "Delta" else frozenset()
        self._left = TRIED_SEGMENTS if way == "Auto" and columns else 0
        self._bytes: dict[str, list[float]] = {}

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
                _, buffer = pack_column(0, CODES[array.dtype], array, compressed=True, delta=way == 1)
                self._bytes.setdefault(name, [0.0, 0.0])[way] += len(buffer)
        if not self._left:
            self._decide()

    def _decide(self) -> None:
        self.deltas = frozenset(name for name, (plain, delta) in self._bytes.items() if delta < _WORTH_BYTES * plain)
        for name, (plain, delta) in self._bytes.items():
            way = "differences" if name in self.deltas else "they are"
            sizes = plain / TRIED_SEGMENTS / 1e3, delta / TRIED_SEGMENTS / 1e3
            log.info("%s: %.1f kB a segment, as differences of frames %.1f: they go as %s", name, *sizes, way)

"""Which points have been handed over, in a file of eight bytes a point that a killed process leaves whole."""

from __future__ import annotations

import struct
from pathlib import Path

_TIME = struct.Struct("<d")


class Sent:
    """The ``time_unix`` of every point that was handed over, in their order: the n-th one is the n-th point at the server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()
        self._cut(len(self))  # a kill in the middle of a write leaves a part of an entry

    def __len__(self) -> int:
        return self._path.stat().st_size // _TIME.size

    @property
    def last(self) -> float:
        """That of the last point; 0 where there is none."""
        with self._path.open("rb") as file:
            file.seek(max(0, len(self) - 1) * _TIME.size)
            data = file.read(_TIME.size)
        return float(_TIME.unpack(data)[0]) if data else 0.0

    def add(self, *times_unix: float) -> None:
        """Points that follow."""
        with self._path.open("ab") as file:
            file.write(b"".join(map(_TIME.pack, times_unix)))

    def adjust(self, count: int, last: float) -> None:
        """The server has ``count`` points: what was handed over beyond them is forgotten. Where it has more than are known here,
        because this folder is a new one, the last of them is that of ``last``."""
        if count > len(self):
            self.add(*[max(self.last, last)] * (count - len(self)))
        self._cut(count)

    def _cut(self, count: int) -> None:
        with self._path.open("r+b") as file:
            file.truncate(count * _TIME.size)

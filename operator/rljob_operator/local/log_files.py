"""The logs of a run's roles, ``logs/<name>.log``: their last lines, and what is appended to them."""

import os
from collections.abc import Iterator
from pathlib import Path

_BLOCK_BYTES = 16384
LARGEST_BYTES = 64 * 2**20
_KEPT_BYTES = 2**20


def tail(path: Path, lines: int) -> list[str]:
    """The last ``lines`` lines of a log; empty where there is none."""
    try:
        with path.open("rb") as log:
            return _last_lines(log.fileno(), lines)[0]
    except OSError:
        return []


def bound(path: Path) -> None:
    """Keep the end of a log that has become too long, which its writers append to meanwhile: an environment that prints in every
    step writes gigabytes an hour. Raises OSError."""
    with path.open("r+b") as log:
        size = os.fstat(log.fileno()).st_size
        if size <= LARGEST_BYTES:
            return
        kept = os.pread(log.fileno(), _KEPT_BYTES, size - _KEPT_BYTES).partition(b"\n")[2]
        log.truncate(0)
    with path.open("ab") as log:
        log.write(f"rljob: {size - len(kept):,} bytes of this log were removed, as it grew too large\n".encode() + kept)


class LogFollower:
    """Gives the last ``lines`` lines of ``path`` and from then on what is appended. The file may come, or come anew, later."""

    def __init__(self, path: Path, lines: int) -> None:
        self._path = path
        self._lines = lines
        self._offset: int | None = None
        self._part = b""

    def new_lines(self) -> Iterator[str]:
        """Whole lines since the last call."""
        try:
            with self._path.open("rb") as log:
                if self._offset is None:
                    lines, self._offset = _last_lines(log.fileno(), self._lines)
                    yield from lines
                    return
                if log.seek(0, os.SEEK_END) < self._offset:
                    self._offset, self._part = 0, b""
                log.seek(self._offset)
                data = self._part + log.read()
                self._offset = log.tell()
        except OSError:
            return
        *whole, self._part = data.split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


def _last_lines(file: int, lines: int) -> tuple[list[str], int]:
    """(the last ``lines`` whole lines, the file's size up to their end)."""
    end = os.fstat(file).st_size
    start, data = end, b""
    while start > 0 and data.count(b"\n") <= lines:
        size = min(_BLOCK_BYTES, start)
        start -= size
        data = os.pread(file, size, start) + data
    return (data.decode(errors="replace").splitlines()[-lines:] if lines > 0 else []), end

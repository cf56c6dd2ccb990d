"""The one way to replace a file or a folder: a reader, and the next start after a crash, finds the old one or the new one. And a
folder for unix sockets, whose paths must be short."""

import contextlib
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rljob.errors import UsageError

log = logging.getLogger(__name__)

_NEW: Final = ".new-"
_ASIDE: Final = ".old-"
_TOKEN_CHARACTERS: Final = 8


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Give a free name beside ``path``; the file or folder that the block writes there takes the place of ``path``.

    Where the block or the replacement fails, ``path`` is as it was and nothing is left beside it. ``durable``: the disk has
    it when this returns. A folder can't be replaced in one step: after a crash in between, `recover` puts the old one back.
    Raises OSError where the disk doesn't take it.
    """
    new = _beside(path, _NEW)
    try:
        yield new
        if durable:
            flush(new)
        _put_in_place(new, path)
        if durable:
            _flush_entry(path.parent)
    finally:
        _remove(new)


def replace(path: Path, content: str | bytes, *, durable: bool = False, essential: bool = True) -> None:
    """Replace the file ``path`` by ``content``; text is written as UTF-8.

    Raises OSError where the disk doesn't take it. Where the file is not ``essential``, the log has a warning instead.
    """
    try:
        with replacing(path, durable=durable) as new:
            # A path may have bytes that are no UTF-8.
            new.write_bytes(content.encode(errors="backslashreplace") if isinstance(content, str) else content)
    except OSError as error:
        if essential:
            raise
        log.warning("%s can't be written: %s", path, error.strerror)


def recover(folder: Path) -> None:
    """Mend what a crash left in ``folder``: a folder that was moved aside and not replaced is put back, the rest is removed.

    Only for the one program that writes there.
    """
    for old in folder.glob(f"{_ASIDE}*"):
        path = folder / old.name[len(_ASIDE) + _TOKEN_CHARACTERS + 1 :]
        if path.exists():
            _remove(old)
        else:
            old.rename(path)
    for new in folder.glob(f"{_NEW}*"):
        _remove(new)


def remove(path: Path) -> None:
    """Remove a file or a folder; a folder disappears in one step. Raises OSError where it stays."""
    if path.is_dir() and not path.is_symlink():
        path = path.rename(_beside(path, _NEW))
    _remove(path)


def flush(path: Path) -> None:
    """Have the disk take a file, or a folder with its files."""
    for file in path.iterdir() if path.is_dir() else (path,):
        with file.open("rb") as content:
            os.fsync(content.fileno())
    if path.is_dir():
        _flush_entry(path)


def _put_in_place(new: Path, path: Path) -> None:
    if not (new.is_dir() and path.exists()):
        new.replace(path)
        return
    aside = path.rename(_beside(path, _ASIDE))
    try:
        new.rename(path)
    except OSError:
        aside.rename(path)
        raise
    _remove(aside)


def _beside(path: Path, mark: str) -> Path:
    return path.with_name(f"{mark}{secrets.token_hex(_TOKEN_CHARACTERS // 2)}-{path.name}")


def _flush_entry(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some filesystems cannot; the rename is still ordered after the data
            os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


LONGEST_PATH_BYTES: Final = 103
"""Longest path of a unix socket: what the kernel takes, less what libzmq needs."""

_ROOM_BYTES: Final = 34
"""For the folder's own name and a socket's in it."""


class NoSocketFolder(UsageError):
    """There is no folder for temporary files that can be used; the message says why."""


def parent_of_sockets() -> str:
    """The folder for temporary files (``TMPDIR``), or /tmp where its path is too long for a socket in a folder of it."""
    parent = tempfile.gettempdir()
    return parent if len(os.fsencode(parent)) <= LONGEST_PATH_BYTES - _ROOM_BYTES else "/tmp"


def socket_folder(prefix: str) -> Path:
    """A new folder for this user alone, in the one for sockets. Raises NoSocketFolder."""
    try:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=parent_of_sockets()))
    except OSError as error:
        raise NoSocketFolder(
            f"no folder for unix sockets: {error}; set TMPDIR to one that can be written and has a short path"
        ) from error

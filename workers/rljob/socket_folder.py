"""A folder for unix sockets, whose paths the kernel bounds to about a hundred bytes."""

import os
import tempfile
from pathlib import Path
from typing import Final

from rljob.errors import UsageError

LONGEST_PATH_BYTES: Final = 103
"""Longest path of a unix socket: what the kernel takes, less what libzmq needs."""

_ROOM_BYTES: Final = 34
"""For the folder's own name and a socket's in it."""


class NoSocketFolder(UsageError):
    """There is no folder for temporary files that can be used; the message says why."""


def socket_folder(prefix: str) -> Path:
    """A new folder for this user alone: below the one for temporary files (``TMPDIR``), or below /tmp where its path is too
    long for a socket in it. Raises NoSocketFolder."""
    try:
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > LONGEST_PATH_BYTES - _ROOM_BYTES:
            parent = "/tmp"
        return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    except OSError as error:
        raise NoSocketFolder(
            f"no folder for unix sockets: {error}; set TMPDIR to one that can be written and has a short path"
        ) from error

"""The server beside a replay shard in a pod: ``serve`` becomes it, ``ping`` asks whether it has read its data.

    python -m rljob.replay.redis_server serve DIRECTORY SOCKET (Snapshot | AppendOnly) LARGEST_BYTES
    python -m rljob.replay.redis_server ping SOCKET

The operator starts it (`rljob_operator.kube.render.pod`); `rljob.replay.embedded_redis` is its like for a single machine.
"""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rljob.replay.redis_options import Persistence, server_options

_ANSWER_SECONDS: Final = 4.0
_MODES: Final[Mapping[str, Persistence]] = {"Snapshot": "Snapshot", "AppendOnly": "AppendOnly"}


def serve(directory: Path, socket_path: Path, persistence: Persistence, largest_bytes: int) -> None:
    """Become the server, once no other one has the folder. Raises ``RedisUnavailable``."""
    from rljob.replay.embedded_redis import SAVE_SECONDS, find_server, locked

    program = find_server()
    lock = locked(directory, SAVE_SECONDS)
    os.set_inheritable(lock, True)  # the server keeps it for as long as it lives
    socket_path.unlink(missing_ok=True)
    options = server_options(str(directory), str(socket_path), persistence, largest_bytes=largest_bytes)
    os.execv(program, [str(program), *options])


def answers(socket_path: Path) -> bool:
    """Whether the server takes commands; it does not while it reads its data."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_ANSWER_SECONDS)
            client.connect(str(socket_path))
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def main(words: Sequence[str]) -> int:
    """The exit code of a command line."""
    match words:
        case ["serve", directory, path, mode, largest] if mode in _MODES and largest.isdecimal():
            try:
                serve(Path(directory), Path(path), _MODES[mode], int(largest))
            except (RuntimeError, OSError) as problem:
                print(f"rljob: {problem}", file=sys.stderr)
                return 1
        case ["ping", path]:
            return 0 if answers(Path(path)) else 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

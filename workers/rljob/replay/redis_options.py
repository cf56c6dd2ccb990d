"""How a Redis (or Valkey) server of a replay shard is started: the same beside a process and in a pod."""

from typing import Literal

Persistence = Literal["None", "Snapshot", "AppendOnly"]


def server_options(
    directory: str, socket: str, persistence: Persistence, *, log_file: str = "", largest_bytes: int = 0
) -> list[str]:
    """The arguments of the program. Data is in ``directory``; the server is reached through ``socket`` alone.

    ``Snapshot`` saves every five minutes and at SIGTERM; ``AppendOnly`` logs every write and flushes it each second. An empty
    ``log_file`` is standard output. Above ``largest_bytes`` of data it takes no writes; 0 sets no limit.
    """
    keep = persistence == "Snapshot"
    options = {
        "port": "0",
        "unixsocket": socket,
        "unixsocketperm": "700",
        "dir": directory,
        "logfile": log_file,
        "save": "300 1" if keep else "",
        # Forced: one whose owner was killed must end, also where it can't save; else it keeps the folder for ever.
        "shutdown-on-sigterm": "save force" if keep else "nosave force",
        "appendonly": "yes" if persistence == "AppendOnly" else "no",
        "appendfsync": "everysec",
        "maxmemory": str(largest_bytes),
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]

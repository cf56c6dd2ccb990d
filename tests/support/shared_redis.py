"""A Redis that no shard has started: with a password, on loopback or a unix socket, for several jobs at once."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import redis
from rljob.replay.embedded_redis import find_server
from rljob.replay.redis_client import Login, connect

from tests.support.ports import free_ports
from tests.support.waiting import eventually

PASSWORD = "none-of-your-business"


@dataclass(frozen=True)
class SharedRedis:
    """Two addresses of one server."""

    url: str
    socket_url: str
    admin: redis.Redis

    def names(self, beginning: str = "") -> set[str]:
        """The names of all keys that begin so, but for actors' leases, which end by themselves within seconds."""
        return {key.decode() for key in self.admin.scan_iter(f"{beginning}*") if b":actor:" not in key}


@contextlib.contextmanager
def shared_redis(folder: Path, *options: str, password: str = PASSWORD) -> Iterator[SharedRedis]:
    """A server with its files in ``folder``, and with more of its own ``options``."""
    (port,) = free_ports(1)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "shared.sock"
    words = {"port": port, "bind": "127.0.0.1", "unixsocket": path, "dir": folder, "save": "", "requirepass": password}
    command = [find_server(), *(word for name, value in words.items() for word in (f"--{name}", str(value))), *options]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(str(path), login=Login(password=password)) as admin:

            def answers() -> bool:
                with contextlib.suppress(redis.ConnectionError):
                    return bool(admin.ping())
                return False

            eventually(answers, "the server's answer", 20.0, between=lambda: time.sleep(0.02))
            yield SharedRedis(f"redis://127.0.0.1:{port}", f"unix://{path}", admin)
    finally:
        process.kill()
        process.wait()

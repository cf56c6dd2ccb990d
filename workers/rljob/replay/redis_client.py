"""The one way this room connects to Redis, and what its errors mean."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self

import redis
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

OLDEST_SERVER: Final = (6, 2)
"""Oldest release of a Redis of the user's own. The one beside a shard has to be newer, for the way in which it ends."""


class LostWrites(redis.RedisError):
    """The server does not hold what was written last."""


class UnsuitableServer(redis.RedisError):
    """A server that can hold no log; the text says why, and what to use instead."""


@dataclass(frozen=True, slots=True)
class Login:
    """A shard's login at its Redis, and the authority (PEM) that has signed the server's certificate; all may be empty."""

    username: str = ""
    password: str = field(default="", repr=False)
    authority: str = field(default="", repr=False)

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Self:
        """From variables: on a command line every user of the machine could read it."""
        return cls(*(variables.get(f"RLJOB_REDIS_{name}", "") for name in ("USERNAME", "PASSWORD", "CA")))

    def options(self, address: str) -> dict[str, Any]:
        """For a client of ``address``."""
        found = {"username": self.username or None, "password": self.password or None}
        if address.startswith("rediss://") and self.authority:
            found["ssl_ca_data"] = self.authority
        return found


def connect(address: str, timeout_seconds: float = 10.0, login: Login = Login()) -> Redis:
    """A client for a unix socket path or a ``redis://``, ``rediss://`` or ``unix://`` URL; replies are bytes.

    Commands are never repeated behind the caller's back: the sender of a transaction must know that it may have failed.
    The connection is made by the first command, which raises ``redis.RedisError`` when it cannot be.
    """
    retry = Retry(NoBackoff(), 0)
    if "://" in address:
        return Redis.from_url(
            address,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=retry,
            **login.options(address),
        )
    return Redis(
        unix_socket_path=address,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
        retry=retry,
        **login.options(address),
    )


def check_server(client: Redis) -> None:
    """Raises `UnsuitableServer` for a server that is too old or one of a cluster. One that may not be asked is taken as it is."""
    with suppress(redis.ResponseError):
        info = client.info("server")
        if "cluster" in (info.get("redis_mode"), info.get("server_mode")):  # as Redis and Valkey name it
            raise UnsuitableServer(
                "Redis is one server of a cluster, which keeps keys apart that are written together; give the address of a "
                "server without cluster mode"
            )
        version = str(info.get("redis_version", ""))
        numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
        if numbers and numbers < OLDEST_SERVER:
            oldest = ".".join(map(str, OLDEST_SERVER))
            raise UnsuitableServer(f"Redis {version} is too old; use {oldest} or later")


_MEANINGS: Final[Sequence[tuple[Any, str]]] = (
    (redis.TimeoutError, "Redis does not answer in time ({})"),
    (redis.AuthenticationError | redis.exceptions.NoPermissionError, "Redis refuses this user: {}"),
    (redis.BusyLoadingError, "Redis is still reading its data"),
    (redis.ConnectionError, "Redis can't be reached ({})"),
    (redis.ReadOnlyError, "Redis is a read-only replica; give the address of the primary"),
    (redis.OutOfMemoryError, "Redis has no memory left: {}"),
)
"""The first that fits counts: some are of the kind of others."""


def in_words(error: redis.RedisError) -> str:
    """What an error of Redis means for the job's user, and where it is known, how to mend it; one line."""
    if isinstance(error, UnsuitableServer | LostWrites):
        return str(error)
    text = (str(error).splitlines() or [""])[0] or type(error).__name__
    for kind, words in _MEANINGS:
        if isinstance(error, kind):
            return words.format(text)
    if "MISCONF" in text:
        return "Redis can't save to its disk and takes no writes; free space there"
    return f"Redis answers with an error: {text}"

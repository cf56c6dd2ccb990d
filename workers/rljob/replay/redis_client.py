"""The one way this room connects to Redis."""

from __future__ import annotations

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def connect(address: str, timeout_seconds: float = 10.0) -> Redis:
    """A client for a unix socket path or a ``redis://``, ``rediss://`` or ``unix://`` URL; replies are bytes.

    Commands are never repeated behind the caller's back: whoever sent a transaction must know that it may have failed.
    The connection is made by the first command, which raises ``redis.RedisError`` when it cannot be.
    """
    retry = Retry(NoBackoff(), 0)
    if "://" in address:
        return Redis.from_url(
            address, socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds, retry=retry
        )
    return Redis(
        unix_socket_path=address,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
        retry=retry,
    )

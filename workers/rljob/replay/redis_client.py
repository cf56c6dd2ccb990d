"""The one way this room connects to Redis, and what its errors mean."""

from __future__ import annotations

import redis
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


def in_words(error: redis.RedisError) -> str:
    """What an error of Redis means for whoever runs the job, and where it can be known, what mends it; one line."""
    text = (str(error).splitlines() or [""])[0] or type(error).__name__
    if isinstance(error, redis.TimeoutError):
        return f"Redis does not answer in time ({text})"
    if isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError):
        return f"Redis refuses this user: {text}"
    if isinstance(error, redis.BusyLoadingError):
        return "Redis is still reading its data"
    if isinstance(error, redis.ConnectionError):
        return f"Redis can't be reached ({text})"
    if isinstance(error, redis.ReadOnlyError):
        return "Redis is a read-only replica; give the address of the primary"
    if isinstance(error, redis.OutOfMemoryError):
        return f"Redis has no memory left: {text}"
    if "MISCONF" in text:
        return "Redis can't save to its disk and takes no writes; free space there"
    return f"Redis answers with an error: {text}"

"""What a replay shard says of its log, and whether the log holds what the table does."""

import time
from typing import Any

from rljob.ingest.shard_status import RedisStatus

from tests.support.waiting import eventually

LOG, CHUNKS = "run:test:shard:0:log", "run:test:shard:0:chunk:*"


def redis_of(service: Any) -> RedisStatus:
    part: RedisStatus = service.status.redis
    return part


def reaches(service: Any, state: str, actor: Any = None, seconds: float = 40.0) -> RedisStatus:
    """Wait for a state of the log while ``actor``, if one is given, goes on sending."""

    def there() -> bool:
        if actor is not None and actor.window.unacknowledged == 0:
            actor.produce(1)
        if actor is not None:
            actor.step()
        return bool(redis_of(service).state == state)

    eventually(there, state, seconds, between=lambda: time.sleep(0.05))
    return redis_of(service)


def assert_log_equals_table(service: Any, admin: Any) -> None:
    """Index, chunks and table come to be the same, so nothing is left behind that will never be removed."""

    def sizes() -> tuple[int, int, int]:
        return admin.scard(LOG), len(admin.keys(CHUNKS)), len(service.table)

    eventually(lambda: service.status.redis.lag_chunks == 0 and len(set(sizes())) == 1, sizes)

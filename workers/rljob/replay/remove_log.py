"""Removes a shard's log from a Redis that others use, too, once its job is over.

    python -m rljob.replay.remove_log redis://redis.db:6379 pong/0b1c SHARD

User, password and authority are the variables that the shard had them in. Exit code 1: Redis could not be asked, try again; what
is left there expires by itself.
"""

import os
import sys
from collections.abc import Sequence

import redis

from rljob.replay.chunk_log import ChunkLog
from rljob.replay.redis_client import Login, connect, in_words


def main(words: Sequence[str]) -> int:
    """The exit code of a command line."""
    match words:
        case [address, keys, shard] if shard.isdecimal():
            try:
                with connect(address, login=Login.of(os.environ)) as client:
                    removed = ChunkLog(client, keys, int(shard), "removed").remove()
            except redis.RedisError as problem:
                print(f"rljob: run:{keys}: not removed: {in_words(problem)}", file=sys.stderr)
                return 1
            print(f"rljob: run:{keys}: {removed} chunks removed")
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A replay service as a process of its own, to be killed: prints its endpoints as one JSON line, serves until SIGTERM."""

import json
import logging
import signal
import sys
import threading
from pathlib import Path

from rljob.replay.embedded_redis import EmbeddedRedis
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity

from tests.support.replay_peers import config


def main(directory: str, ingest: str, sample: str, persistence: str) -> None:
    logging.basicConfig(level=logging.INFO)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with EmbeddedRedis(Path(directory), persistence) as redis:
        changes = {"ingest": ingest, "sample": sample, "redis": str(redis.socket)}
        service = ReplayService(config(run="kill", capacity=Capacity(100_000), **changes))
        print(json.dumps({"redis_pid": redis.process.pid}), flush=True)
        service.run(stop)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A replay service as a process of its own, to be killed: prints its endpoints as one JSON line, serves until SIGTERM."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path

import numpy as np
from rljob.experience import ChunkLayout
from rljob.replay.config import ReplayConfig
from rljob.replay.embedded_redis import EmbeddedRedis
from rljob.replay.limiter import LimiterConfig
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity


def main(directory: str, ingest: str, sample: str, persistence: str) -> None:
    logging.basicConfig(level=logging.INFO)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with EmbeddedRedis(Path(directory), persistence) as redis:
        service = ReplayService(
            ReplayConfig(
                run="kill",
                layout=ChunkLayout(length=10, frame_shape=(6, 6), frame_dtype=np.dtype(np.uint8), stack=4, n_step=3),
                capacity=Capacity(100_000),
                limiter=LimiterConfig(0.0, 20, 0.0, insert_step=10, sample_step=16),
                ingest=ingest,
                sample=sample,
                redis=str(redis.socket),
            )
        )
        assert redis.process is not None
        print(json.dumps({"redis_pid": redis.process.pid}), flush=True)
        service.run(stop)


if __name__ == "__main__":
    main(*sys.argv[1:])

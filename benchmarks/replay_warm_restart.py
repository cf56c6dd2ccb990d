"""How long a shard takes to be warm again: 500,000 transitions of Pong from its Redis, priorities included.

python -m benchmarks.replay_warm_restart [--transitions 500000]
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import uuid
from pathlib import Path

from rljob.replay.chunk_log import ChunkLog, Commit, LogState
from rljob.replay.config import ReplayConfig
from rljob.replay.embedded_redis import EmbeddedRedis
from rljob.replay.limiter import LimiterConfig
from rljob.replay.redis_client import connect
from rljob.replay.restore import pack_weights
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity

from benchmarks.common import machine, report
from benchmarks.replay_throughput import BATCH, LAYOUT, LENGTH, filled, on_the_wire, pong_chunks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transitions", type=int, default=500_000)
    options = parser.parse_args()
    report("machine", **machine())
    source = filled(on_the_wire(pong_chunks(400)), options.transitions)
    with tempfile.TemporaryDirectory() as directory, EmbeddedRedis(Path(directory) / "redis") as server:
        log = ChunkLog(connect(str(server.socket)), "benchmark", 0, "writer")
        log.take_over()
        started = time.perf_counter()
        for first in range(0, source.head, 64):
            stored = [source.chunk(i) for i in range(first, min(first + 64, source.head))]
            log.commit(Commit([(c.generation, c.raw) for c in stored]))
        report("replay_log_write", transitions_per_second=source.items / (time.perf_counter() - started))
        state = LogState({"inserted": source.items, "next_generation": source.next_generation}, {})
        log.commit(Commit(state=state, weights=pack_weights(source)))
        used = log.client.info("memory")["used_memory"]
        report("replay_redis_memory", bytes_per_transition=used / source.items)
        seconds = _restart(str(server.socket), source.items)
        report("replay_warm_restart", seconds=seconds, transitions=source.items, chunk_length=LENGTH)


def _restart(redis: str, transitions: int) -> float:
    config = ReplayConfig(
        run="benchmark", layout=LAYOUT, capacity=Capacity(transitions), limiter=LimiterConfig(0.0, 1, 0.0, LENGTH, BATCH),
        ingest=f"inproc://{uuid.uuid4().hex}", sample=f"inproc://{uuid.uuid4().hex}", redis=redis,
    )  # fmt: skip
    started, stop = time.perf_counter(), threading.Event()
    service = ReplayService(config)
    thread = threading.Thread(target=service.run, args=(stop,))
    thread.start()
    while service.state == "warming":
        time.sleep(0.01)
    seconds = time.perf_counter() - started
    stop.set()
    thread.join()
    assert service.table.items == transitions
    return seconds


if __name__ == "__main__":
    main()

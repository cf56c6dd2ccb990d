"""Bytes of all shards' statuses with many actors: what a learner reads each second, counted exactly.

Real services and real actors' sinks, whose environments are left out; the shards are threads of this process. One JSON line.

    python -m benchmarks.scale.status_bytes [--shards 16] [--actors 256]
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time

import zmq
from rljob.replay.config import ReplayConfig
from rljob.replay.limiter import LimiterConfig
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity
from rljob.strict_json import dumps

from benchmarks.common import machine, report
from benchmarks.scale.shards import BATCH, LAYOUT, LENGTH, sink


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--actors", type=int, default=256)
    options = parser.parse_args()
    report("machine", **machine())
    zmq.Context.instance().set(zmq.MAX_SOCKETS, 4 * (options.shards + 1) * options.actors)
    limiter = LimiterConfig(0.0, 1, 0.0, LENGTH, BATCH)
    with tempfile.TemporaryDirectory(prefix="rljob-") as directory:
        services = [
            ReplayService(
                ReplayConfig(
                    run="benchmark", layout=LAYOUT, capacity=Capacity(1000), limiter=limiter, shard=index, slots=256,
                    ingest=f"ipc://{directory}/i{index}", sample=f"ipc://{directory}/s{index}",
                )
            )
            for index in range(options.shards)
        ]  # fmt: skip
        stop = threading.Event()
        threads = [threading.Thread(target=service.run, args=(stop,)) for service in services]
        for thread in threads:
            thread.start()
        actors = [sink(directory, options.shards, f"actor-{number}") for number in range(options.actors)]
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            for actor in actors:
                actor.poll()
            told = {each.name for service in services for each in service.status.actors if each.state != "Starting"}
            everyone = all(session.connected for actor in actors for session in actor.sessions)
            if len(told) == options.actors and everyone:
                break
        settled = time.monotonic() + 15
        while time.monotonic() < settled:
            for actor in actors:
                actor.poll()
        documents = [service.status.to_document() for service in services]
        entries = {each["name"]: each for document in documents for each in document["actors"]}
        once = len(dumps(sorted(entries.values(), key=lambda each: each["name"])))
        report(
            "status_bytes",
            shards=options.shards,
            actors=len(entries),
            entries=sum(len(document["actors"]) for document in documents),
            bytes_of_all_shards=sum(len(dumps(document)) for document in documents),
            bytes_of_actors_once=once,
        )
        stop.set()
        for thread in threads:
            thread.join()
        for actor in actors:
            actor.close()


if __name__ == "__main__":
    main()

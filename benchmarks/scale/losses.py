"""No acknowledged chunk is lost: shards and the learner are killed while actors insert; what can be sampled then is counted.

Shards are processes of their own, each with the Redis of its log, real sockets, actors' real sinks and the learner's real client;
the experience is synthetic, and each chunk has a number. A process is killed by SIGKILL every few seconds and started again at
once, each fourth time the learner, with a later epoch. At the end every chunk has been acknowledged by some shard: those that no
shard has are lost, those that two have were inserted twice.

    python -m benchmarks.scale losses [--shards 16] [--actors 4] [--kills 24] [--every 2]
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rljob.actor.shards import MultiShard
from rljob.algorithms.base import importance_weights
from rljob.experience import Segment
from rljob.ingest.shard_status import ShardStatus
from rljob.learner.client import ReplayClient, ReplayClientConfig
from rljob.replay.config import ReplayConfig
from rljob.replay.embedded_redis import EmbeddedRedis
from rljob.replay.limiter import LimiterConfig
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity
from rljob.wire import Client, Message

from benchmarks.common import machine, report
from benchmarks.scale.shards import BATCH, LAYOUT, LENGTH, chunk, sink

CHUNKS_PER_SECOND = 50.0
UPDATE_SECONDS = 0.02
CAPACITY = 4_000_000
LONGEST_SECONDS = 120.0


def serve(directory: str, index: int, count: int) -> None:
    """One shard, until it is killed."""
    with EmbeddedRedis(Path(directory) / f"redis{index}", "AppendOnly") as redis:
        service = ReplayService(
            ReplayConfig(
                run="benchmark", layout=LAYOUT, capacity=Capacity(CAPACITY // count), shard=index, credits=32, slots=256,
                limiter=LimiterConfig(0.0, 1, 0.0, LENGTH, BATCH), redis=str(redis.socket), seed=index,
                ingest=f"ipc://{directory}/i{index}", sample=f"ipc://{directory}/s{index}",
            )
        )  # fmt: skip
        service.run(threading.Event())


def learn(directory: str, count: int, epoch: int, batches: Any) -> None:
    """A learner, until it is killed. ``batches``: a counter that outlives it."""
    endpoints = tuple(f"ipc://{directory}/s{index}" for index in range(count))
    client = ReplayClient(
        ReplayClientConfig(endpoints, LAYOUT, BATCH, epoch=epoch), importance_weights, torch.device("cpu")
    )
    draw = np.random.default_rng(epoch)
    while True:
        if (batch := client.next(1.0)) is not None:
            client.learned(batch, draw.gamma(0.5, 0.2, BATCH).astype(np.float32))
            client.give_back(batch)
            time.sleep(UPDATE_SECONDS)
            with batches.get_lock():
                batches.value += 1


def stored(directory: str, index: int) -> list[int]:
    """The numbers of all chunks that a learner of this shard can draw from, as it is sent them."""
    with Client(f"ipc://{directory}/s{index}") as client:
        deadline, found, size = time.monotonic() + LONGEST_SECONDS, [], None
        next_ask = 0.0
        subscribed = False
        while size is None or len(found) < size:
            if (now := time.monotonic()) > deadline:
                raise TimeoutError(f"shard {index} has sent {len(found)} chunks of {size}")
            if now > next_ask:
                next_ask = now + 1.0
                if not subscribed:
                    subscribed = client.send(
                        Message("subscribe", {"inc": f"count-{index}", "epoch": 1_000}, LAYOUT.leaves_column)
                    )
                client.send(Message("stats", {}, {}))
            message = client.receive(0.2)
            if message is not None and message.kind == "stats" and "json" in message.columns:
                status = ShardStatus.from_json(message.columns["json"].tobytes())
                size = status.chunks if status.state == "serving" else None
            elif message is not None and message.kind == "mirror":
                found.append(int(Segment.from_message(message, LAYOUT)["action"][0]))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--actors", type=int, default=4)
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--every", type=float, default=2.0, help="seconds from one kill to the next")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report("machine", **machine())
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rljob.learner.client", "rljob.replay.service", "benchmarks.scale.shards"])
    batches = context.Value("q", 0)
    dice, made = random.Random(options.seed), np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory(prefix="rljob-") as directory:

        def shard(index: int) -> Any:
            process = context.Process(target=serve, args=(directory, index, options.shards))
            process.start()
            return process

        def learner(epoch: int) -> Any:
            process = context.Process(target=learn, args=(directory, options.shards, epoch, batches))
            process.start()
            return process

        def mended() -> int:
            """Start shards again that have ended by themselves, as a kubelet would; how many."""
            gone = [index for index, process in enumerate(shards) if not process.is_alive()]
            for index in gone:
                shards[index] = shard(index)
            return len(gone)

        shards, learning, epoch = [shard(index) for index in range(options.shards)], learner(1), 1
        actors: list[MultiShard] = [
            sink(Path(directory), options.shards, f"actor-{number}") for number in range(options.actors)
        ]
        try:
            number, kills, ended, unacknowledged_at_kills, learned = 0, 0, 0, 0, []
            wait_for(actors, options.shards)
            began = next_kill = time.monotonic()
            while kills < options.kills or time.monotonic() < next_kill:
                now = time.monotonic()
                while number < CHUNKS_PER_SECOND * (now - began) and not all(actor.waiting for actor in actors):
                    ready = [actor for actor in actors if not actor.waiting]
                    actor = ready[number % len(ready)]
                    actor.encode(chunk(number, made, actor.sessions[0].actor))
                    number += 1
                for actor in actors:
                    actor.poll()
                ended += mended()
                if now >= next_kill:
                    next_kill, kills = now + options.every, kills + 1
                    unacknowledged_at_kills += sum(actor.unacknowledged for actor in actors)
                    if kills % 4:
                        victim = dice.randrange(options.shards)
                        shards[victim].kill()
                        shards[victim].join()
                        shards[victim] = shard(victim)
                    else:
                        learning.kill()
                        learning.join()
                        learned.append(batches.value)
                        epoch += 1
                        batches = context.Value("q", 0)
                        learning = learner(epoch)
                time.sleep(0.001)
            later = drained(actors, mended)
            learning.kill()
            found = Counter(each for index in range(options.shards) for each in stored(directory, index))
            report(
                "losses",
                shards=options.shards, kills_of_shards=kills - kills // 4, kills_of_the_learner=kills // 4,
                ended_by_themselves=ended + (later or 0), chunks=number,
                all_acknowledged=later is not None,
                in_the_logs=all(actor.durable for actor in actors),
                unacknowledged_at_kills=unacknowledged_at_kills,
                lost=sum(each not in found for each in range(number)),
                inserted_twice=sum(count > 1 for count in found.values()),
                unknown=sum(not 0 <= each < number for each in found),
                batches_of_each_learner=[*learned, batches.value],
                seconds=time.monotonic() - began,
            )  # fmt: skip
        finally:
            for actor in actors:
                actor.close()
            for process in [*shards, learning]:
                process.terminate()
                process.join()


def wait_for(actors: list[MultiShard], shards: int) -> None:
    """Until every actor is known to every shard."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while not all(session.connected for actor in actors for session in actor.sessions):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all of {shards} shards have come up")
        for actor in actors:
            actor.poll(0.01)


def drained(actors: list[MultiShard], mended: Callable[[], int]) -> int | None:
    """How many shards ended by themselves until all chunks were acknowledged; None where they never were."""
    deadline, ended = time.monotonic() + LONGEST_SECONDS, 0
    while any(actor.unacknowledged for actor in actors):
        if time.monotonic() > deadline:
            return None
        ended += mended()
        for actor in actors:
            actor.poll(0.005)
    return ended


if __name__ == "__main__":
    main()

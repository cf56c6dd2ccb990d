"""Sampling over 1, 4 and 16 replay shards: batches a second, messages a batch, the age of draws; status bytes of many actors.

Real services in processes of their own, real sockets, the learner's real client; the experience is synthetic, of small
observations, so that messages are the work. One JSON line a result; what is compared is ratios within one run.

    python -m benchmarks.scale.shards [--shards 1 4 16] [--rounds 3] [--seconds 3] [--update-ms 0]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rljob.acting import ActorIdentity
from rljob.actor.figures import ActorFigures
from rljob.actor.session import ReplaySession
from rljob.actor.shards import MultiShard
from rljob.algorithms.base import importance_weights
from rljob.experience import Segment, transition_layout
from rljob.learner.client import ReplayClient, ReplayClientConfig
from rljob.observation import frames
from rljob.replay.config import ReplayConfig
from rljob.replay.limiter import LimiterConfig
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity
from rljob.wire import Client

from benchmarks.common import machine, report

LENGTH, BATCH, TRANSITIONS = 50, 512, 64_000
LAYOUT = transition_layout(LENGTH, frames((8,), np.float32, 1), 1)


def chunk(number: int, random: np.random.Generator, actor: str = "actor-0") -> Segment:
    """Its transitions name the time at which it was made nowhere: an action is the number of its chunk."""
    at = np.arange(LENGTH, dtype=np.uint16)
    columns = {
        "frames": random.random((LENGTH + 1, 8), np.float32),
        "observation": at,
        "next_observation": at + np.uint16(1),
        "action": np.full(LENGTH, number, np.int32),
        "n_step_return": np.zeros(LENGTH, np.float32),
        "discount": np.full(LENGTH, 0.97, np.float32),
        "priority": random.gamma(0.5, 0.2, LENGTH).astype(np.float32) + np.float32(1e-3),
        "flags": np.zeros(LENGTH, np.uint8),
    }
    names = [column.name for column in (*LAYOUT.observation, *LAYOUT.columns)]
    return Segment(LAYOUT, actor, "a", number, 0, 1, 1, LENGTH, {name: columns[name] for name in names})


def serve(directory: str, index: int, count: int, told: Connection) -> None:
    """One shard, until it is told to end."""
    limiter = LimiterConfig(0.0, 1, 0.0, LENGTH, BATCH)
    service = ReplayService(
        ReplayConfig(
            run="benchmark", layout=LAYOUT, capacity=Capacity(2 * TRANSITIONS // count), limiter=limiter, shard=index,
            ingest=f"ipc://{directory}/i{index}", sample=f"ipc://{directory}/s{index}", credits=32, slots=256, seed=index,
        )
    )  # fmt: skip
    stop = threading.Event()
    thread = threading.Thread(target=service.run, args=(stop,))
    thread.start()
    told.send("up")
    while told.recv() != "end":
        told.send(time.process_time())
    stop.set()
    thread.join()


def processor_seconds(pipes: list[Connection]) -> float:
    """What the shards' processes have used up to now."""
    for pipe in pipes:
        pipe.send("time")
    return sum(pipe.recv() for pipe in pipes)


@contextmanager
def shards(count: int) -> Iterator[tuple[Path, list[Connection]]]:
    """``count`` shards in processes of their own; their endpoints are ``i0`` and ``s0`` and so on in the directory."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rljob.learner.client", "rljob.replay.service"])
    with tempfile.TemporaryDirectory(prefix="rljob-") as directory:
        pipes, processes = [], []
        for index in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(directory, index, count, theirs))
            process.start()
            pipes.append(ours)
            processes.append(process)
        for pipe in pipes:
            pipe.recv()
        try:
            yield Path(directory), pipes
        finally:
            for pipe, process in zip(pipes, processes, strict=True):
                pipe.send("end")
                process.join(10)


def sink(directory: Path, count: int, actor: str = "actor-0") -> MultiShard:
    identity = ActorIdentity(actor, "a", 1)
    heartbeat = ActorFigures(identity).heartbeat
    return MultiShard(
        [ReplaySession(Client(f"ipc://{directory}/i{index}"), identity, heartbeat) for index in range(count)]
    )


def fill(directory: Path, count: int) -> None:
    """Give the shards what they hold, each its part."""
    random, into = np.random.default_rng(count), sink(directory, count)
    for number in range(TRANSITIONS // LENGTH):
        while into.waiting:
            into.poll(0.05)
        into.encode(chunk(number, random))
        into.poll()
    if not into.drain(60):
        raise TimeoutError("the shards did not take all chunks")
    into.close()


class Learner:
    """Takes batches and answers with priorities; an update takes ``update_ms``, which the processor spends elsewhere."""

    def __init__(self, directory: Path, pipes: list[Connection], update_ms: float) -> None:
        count, self._pipes = len(pipes), pipes
        self.client = ReplayClient(
            ReplayClientConfig(tuple(f"ipc://{directory}/s{index}" for index in range(count)), LAYOUT, BATCH),
            importance_weights,
            torch.device("cpu"),
        )
        self._update_seconds = update_ms / 1000
        self._priorities = np.random.default_rng(4).gamma(0.5, 0.2, BATCH).astype(np.float32)

    @property
    def messages(self) -> int:
        """Both ways, over all shards."""
        sessions = self.client._sessions
        return sum(session.connection.sent_total + session.connection.received_total for session in sessions)

    def wait(self) -> None:
        """Until every shard serves and has said what it holds."""
        deadline, count = time.monotonic() + 120, len(self._pipes)
        while [shard.state for shard in self.client.statuses()] != ["serving"] * count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the shards do not serve: {[shard.state for shard in self.client.statuses()]}")
            time.sleep(0.1)

    def learn(self, seconds: float) -> dict[str, float]:
        """For so long: batches a second, messages a batch, and the processor time of one, here and in the shards."""
        began, batches, messages, cpu = time.perf_counter(), 0, self.messages, time.process_time()
        shards_cpu = processor_seconds(self._pipes)
        while time.perf_counter() - began < seconds:
            batch = self.client.next(1.0)
            if batch is None:
                continue
            if self._update_seconds:
                time.sleep(self._update_seconds)
            self.client.learned(batch, self._priorities)
            self.client.give_back(batch)
            batches += 1
        took = time.perf_counter() - began
        return {
            "batches_per_second": batches / took,
            "messages_per_batch": (self.messages - messages) / max(1, batches),
            "learner_cpu_ms_per_batch": 1000 * (time.process_time() - cpu) / max(1, batches),
            "shards_cpu_ms_per_batch": 1000 * (processor_seconds(self._pipes) - shards_cpu) / max(1, batches),
        }


def sampling(count: int, rounds: int, seconds: float, update_ms: float) -> dict[str, Any]:
    """Medians over rounds."""
    with shards(count) as (directory, pipes):
        fill(directory, count)
        learner = Learner(directory, pipes, update_ms)
        try:
            learner.wait()
            learner.learn(1.0)
            found = [learner.learn(seconds) for _ in range(rounds)]
        finally:
            learner.client.close()
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    parser.add_argument("--update-ms", type=float, default=0.0, help="how long the learner computes from each batch")
    options = parser.parse_args()
    report("machine", **machine())
    for count in options.shards:
        figures = sampling(count, options.rounds, options.seconds, options.update_ms)
        report("sampling", shards=count, update_ms=options.update_ms, **figures)


if __name__ == "__main__":
    main()

"""K real replay services, real actors' sinks and the learner's real client in one process; only what flows is made up."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from rljob.acting import ActorIdentity
from rljob.actor.figures import ActorFigures
from rljob.actor.session import ReplaySession
from rljob.actor.shards import MultiShard
from rljob.algorithms.base import importance_weights
from rljob.experience import Segment, transition_layout
from rljob.learner.assembly import ReadyBatch
from rljob.learner.client import ReplayClient, ReplayClientConfig
from rljob.observation import frames
from rljob.replay.config import ReplayConfig
from rljob.replay.limiter import LimiterConfig
from rljob.replay.table import Capacity
from rljob.wire import Client

from tests.support.experience import make_chunk
from tests.support.replay_peers import Shard

LAYOUT = transition_layout(5, frames((2,), np.float32), 1)
BATCH = 32
EXPONENT, IMPORTANCE = 0.6, 0.4
SAMPLES_PER_INSERT = 4.0


def chunk(actor: str, number: int, first: int, priority: NDArray[np.float32]) -> Segment:
    """Transitions ``first``, ``first + 1``, ...: the number of each is its action."""
    steps = len(priority)
    action = np.arange(first, first + steps, dtype=np.int32)
    return make_chunk(actor, number, LAYOUT, steps, incarnation="one", action=action, priority=priority)


def make_shard(directory: Path, index: int, limiter: LimiterConfig) -> Shard:
    config = ReplayConfig(
        run="test",
        layout=LAYOUT,
        capacity=Capacity(4000),
        limiter=limiter,
        ingest=f"ipc://{directory}/i{index}",
        sample=f"ipc://{directory}/s{index}",
        shard=index,
        exponent=EXPONENT,
        slots=4,
        seed=index,
    )
    return Shard(config)


class Actor(threading.Thread):
    """Makes chunks of random priorities, one every ``pause_seconds``, as long as the shards take them."""

    def __init__(self, name: str, shards: list[Shard], pause_seconds: float) -> None:
        super().__init__(name=name, daemon=True)
        self._identity = ActorIdentity(name, "one", 1)
        self._shards, self._pause_seconds = shards, pause_seconds
        self.figures = ActorFigures(self._identity)
        self.produced = 0
        self.stop = threading.Event()

    def run(self) -> None:
        sink = MultiShard(
            [
                ReplaySession(Client(shard.config.ingest), self._identity, self.figures.heartbeat)
                for shard in self._shards
            ]
        )
        random = np.random.default_rng(int(self.name[-1]))
        numbers = itertools.count()
        while not self.stop.is_set():
            self.figures.state = "Blocked" if sink.waiting else "Running"
            sink.poll(0.05 if sink.waiting else self._pause_seconds)
            if not sink.waiting:
                priority = random.lognormal(size=LAYOUT.length).astype(np.float32)
                sink.encode(chunk(self.name, next(numbers), self.produced, priority))
                self.produced += LAYOUT.length
                if self._pause_seconds:
                    time.sleep(self._pause_seconds)
        sink.close()


class Sharded:
    """The shards, the actors and the learner's client. ``learn`` is the learner."""

    def __init__(
        self,
        directory: Path,
        count: int,
        *,
        actors: int = 0,
        pause_seconds: float = 0.0,
        samples_per_insert: float = SAMPLES_PER_INSERT,
        exponent: float = EXPONENT,
    ) -> None:
        limiter = LimiterConfig(samples_per_insert, 50, 200.0, insert_step=LAYOUT.length, sample_step=BATCH)
        self.shards = [make_shard(directory, index, limiter) for index in range(count)]
        for shard in self.shards:
            shard.start()
        self.client = ReplayClient(
            ReplayClientConfig(
                tuple(shard.config.sample for shard in self.shards),
                LAYOUT,
                BATCH,
                exponent=exponent,
                importance=IMPORTANCE,
            ),
            importance_weights,
            torch.device("cpu"),
        )
        self.actors = [Actor(f"actor-{number}", self.shards, pause_seconds) for number in range(actors)]
        for actor in self.actors:
            actor.start()
        self.random = np.random.default_rng(7)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self.actors:
            actor.stop.set()
        for actor in self.actors:
            actor.join(20)
        self.client.close()
        for shard in self.shards:
            shard.end()

    def learn(self, batches: int, pause_seconds: float = 0.0, seconds: float = 60.0) -> Counter[int]:
        """Learn from so many batches; answers how many rows came of each shard."""
        rows: Counter[int] = Counter()
        for batch in self.batches(batches, seconds):
            for part in batch.parts:
                rows[part.shard] += part.rows.stop - part.rows.start
            self.client.learned(batch, self.random.lognormal(size=BATCH).astype(np.float32))
            if pause_seconds:
                time.sleep(pause_seconds)
        return rows

    def batches(self, count: int, seconds: float = 60.0) -> Iterator[ReadyBatch]:
        deadline = time.monotonic() + seconds
        for number in range(count):
            while (batch := self.client.next(0.2)) is None:
                assert time.monotonic() < deadline, f"batch {number} of {count} did not come: {self.describe()}"
            yield batch
            self.client.give_back(batch)

    def describe(self) -> str:
        """For a failing test's message."""
        limiters = {
            shard.config.shard: shard.service.status.limiter for shard in self.shards if hasattr(shard, "service")
        }
        return f"limiters {limiters}; actors {[actor.figures.state for actor in self.actors]}"

    def inserted(self) -> list[int]:
        return [shard.inserted for shard in self.shards]


@contextmanager
def filled(directory: Path, count: int) -> Iterator[tuple[Sharded, NDArray[np.float64]]]:
    """Shards that were given experience once, very unevenly, and no ratio; with p^alpha of each transition by its number."""
    with Sharded(directory, count, samples_per_insert=0.0) as sharded:
        random, weights, number = np.random.default_rng(count), [], 0
        for shard in sharded.shards:
            identity = ActorIdentity("actor-0", "one", 1)
            sink = MultiShard([ReplaySession(Client(shard.config.ingest), identity, ActorFigures(identity).heartbeat)])
            # from 10 to 10 * count chunks, of priorities whose scale differs by four orders of magnitude
            scale = 10.0 ** random.uniform(-2, 2)
            for sequence in range(10 * (1 + shard.config.shard)):
                priority = (scale * random.lognormal(size=LAYOUT.length)).astype(np.float32)
                sink.encode(chunk("actor-0", sequence, number, priority))
                weights.append(priority.astype(np.float64) ** EXPONENT)
                number += LAYOUT.length
            assert sink.drain(20)
            sink.close()
        yield sharded, np.concatenate(weights)

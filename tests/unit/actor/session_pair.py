"""A session and its scripted shard, driven in turn by one thread, with a clock of their own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np
from rljob.actor.figures import ActorFigures
from rljob.actor.session import Identity, ReplaySession
from rljob.experience import Chunk
from rljob.wire import Client

from .scripted_shard import ScriptedShard

_NUMBERS = itertools.count()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def a_chunk(number: int, steps: int = 3) -> Chunk:
    return Chunk(
        actor="actor-0",
        incarnation="i1",
        sequence=number,
        environment=0,
        policy_version=1,
        epoch=0,
        frames=np.full((steps + 2, 2), number % 256, np.uint8),
        observation_at=np.arange(steps, dtype=np.uint16),
        bootstrap_at=np.arange(1, steps + 1, dtype=np.uint16),
        action=np.full(steps, number, np.int32),
        n_step_return=np.zeros(steps, np.float32),
        discount=np.ones(steps, np.float32),
        priority=np.ones(steps, np.float32),
        flags=np.zeros(steps, np.uint8),
    )


class Pair:
    """A session and its shard, driven in turn by one thread."""

    def __init__(self, window: int = 4) -> None:
        endpoint = f"inproc://session-{next(_NUMBERS)}"
        self.shard = ScriptedShard(endpoint, window)
        self.clock = Clock()
        identity = Identity("actor-0", "i1", 8)
        self.session = ReplaySession(Client(endpoint), identity, ActorFigures(identity).heartbeat, clock=self.clock)

    def turn(self, times: int = 1, seconds: float = 0.0) -> None:
        for _ in range(times):
            self.session.poll()
            self.shard.serve()
            self.clock.now += seconds
        self.session.poll()

    def until(self, condition: Callable[[], bool], seconds_each: float = 0.0) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            self.turn(1, seconds_each)

    def numbers(self) -> list[int]:
        return [int(chunk.action[0]) for chunk in self.shard.stored]

    def close(self) -> None:
        self.session.close()
        self.shard.server.close()

"""A session and its scripted shard, driven in turn by one thread, with a clock of their own."""

import itertools
from collections.abc import Callable

import numpy as np
from rljob.acting.identity import ActorIdentity
from rljob.actor.figures import ActorFigures
from rljob.actor.session import ReplaySession
from rljob.experience import Segment, transition_layout
from rljob.observation import frames
from rljob.wire import Client

from tests.support.clock import Clock
from tests.support.experience import make_chunk
from tests.support.scripted_shard import ScriptedShard
from tests.support.waiting import eventually

LAYOUT = transition_layout(3, frames((2,), np.uint8), 1)
_NUMBERS = itertools.count()


def a_chunk(number: int) -> Segment:
    """The ``number``th, as its actions say."""
    return make_chunk("actor-0", number, LAYOUT, incarnation="i1", action=np.full(LAYOUT.length, number, np.int32))


class Pair:
    """A session and its shard, driven in turn by one thread."""

    def __init__(self, window: int = 4) -> None:
        endpoint = f"inproc://session-{next(_NUMBERS)}"
        self.shard = ScriptedShard(endpoint, LAYOUT, window)
        self.clock = Clock(100.0)
        identity = ActorIdentity("actor-0", "i1", 8)
        self.session = ReplaySession(Client(endpoint), identity, ActorFigures(identity).heartbeat, clock=self.clock)

    def turn(self, times: int = 1, seconds: float = 0.0) -> None:
        for _ in range(times):
            self.session.poll()
            self.shard.serve()
            self.clock.now += seconds
        self.session.poll()

    def until(self, condition: Callable[[], bool], seconds_each: float = 0.0) -> None:
        eventually(condition, between=lambda: self.turn(1, seconds_each))

    def numbers(self) -> list[int]:
        return [int(chunk["action"][0]) for chunk in self.shard.stored]

    def close(self) -> None:
        self.session.close()
        self.shard.server.close()

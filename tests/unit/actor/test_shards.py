"""Several shards as one sink: even inserts, and a shard that is full, dead or new holds no other back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from rljob.actor.shards import MultiShard
from rljob.wire import Message

from tests.support.session_pair import Pair, a_chunk
from tests.support.waiting import eventually


class Shards:
    """K sessions with their shards behind one sink, driven in turn by one thread. ``dead`` ones are not served."""

    def __init__(self, count: int, window: int = 4) -> None:
        self.pairs = [Pair(window) for _ in range(count)]
        self.sink = MultiShard([pair.session for pair in self.pairs])
        self.dead: set[int] = set()
        self.produced = 0

    def turn(self, times: int = 1, seconds: float = 0.0) -> None:
        for _ in range(times):
            self.sink.poll()
            for number, pair in enumerate(self.pairs):
                if number not in self.dead:
                    pair.shard.serve()
                pair.clock.now += seconds
        self.sink.poll()

    def until(self, condition: Callable[[], bool], seconds_each: float = 0.0) -> None:
        eventually(condition, seconds=20, between=lambda: self.turn(1, seconds_each))

    def connect(self) -> None:
        self.until(lambda: all(pair.session.connected for pair in self.pairs))

    def play(self, chunks: int) -> None:
        """As an actor does: a chunk, and no other before it was taken."""
        for _ in range(chunks):
            self.sink.encode(a_chunk(self.produced))
            self.produced += 1
            self.turn()
            assert not self.sink.waiting, "the actor stands still"

    def kill(self, number: int, *, keep_log: bool) -> None:
        """What the shard was sent and has not read is lost with it."""
        self.dead.add(number)
        shard = self.pairs[number].shard
        shard.mute = True
        shard.serve()
        shard.restart(keep_log)

    def revive(self, number: int) -> None:
        self.pairs[number].shard.serve()
        self.pairs[number].shard.mute = False
        self.dead.discard(number)

    def stored(self) -> list[int]:
        return [len(pair.shard.stored) for pair in self.pairs]

    def close(self) -> None:
        self.sink.close()
        for pair in self.pairs:
            pair.shard.server.close()


def a_game(game_return: float) -> Message:
    columns = {"ret": np.array([game_return], np.float32), "epsilon": np.zeros(1, np.float32)}
    columns |= {name: np.zeros(1, np.int32) for name in ("length", "raw", "env")}
    columns |= {"cut": np.zeros(1, np.uint8), "pv": np.zeros(1, np.int64)}
    return Message("episodes", {"actor": "actor-0", "inc": "i1"}, columns)


@contextmanager
def shards(count: int, window: int = 4) -> Iterator[Shards]:
    made = Shards(count, window)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("count", [2, 4, 16])
def test_shards_that_answer_at_once_are_given_the_same_number_of_chunks(count: int) -> None:
    with shards(count) as all_of_them:
        all_of_them.connect()
        all_of_them.play(10 * count)
        assert all_of_them.stored() == [10] * count
        for pair in all_of_them.pairs:
            assert [chunk.sequence for chunk in pair.shard.stored] == list(range(10)), "each shard sees no gap"


def test_credit_of_every_shard_is_used_before_the_actor_waits() -> None:
    with shards(2, window=3) as both:
        both.connect()
        for pair in both.pairs:
            pair.shard.grant = False
        for number in range(7):
            both.sink.encode(a_chunk(number))
        assert [pair.session.waiting for pair in both.pairs] == [3, 3]
        assert (both.sink.waiting, both.sink.unacknowledged, both.sink.held_transitions) == (1, 7, 21)
        both.turn(2)
        assert both.stored() == [3, 3]
        assert both.sink.waiting == 1, "no shard has a credit for the last one"
        both.pairs[1].shard.grant_now()
        both.until(lambda: both.sink.unacknowledged == 0)
        assert both.stored() == [3, 4]
        assert both.sink.held_transitions == 0
        assert both.sink.total("acknowledged_transitions") == 21


def test_what_may_be_sent_now_is_what_does_not_wait() -> None:
    with shards(1, window=3) as one:
        (pair,) = one.pairs
        pair.shard.least_version = 5
        assert (one.sink.credits, one.sink.least_version) == (0, None)
        one.connect()
        assert (one.sink.credits, one.sink.least_version) == (3, 5)
        pair.shard.grant = False
        for left in (2, 1, 0, -1):
            one.sink.encode(a_chunk(0))
            assert one.sink.credits == left
        one.turn()
        assert one.sink.credits == -1, "what was sent has used its credit"


def test_a_full_shard_takes_nothing_and_holds_nobody_back() -> None:
    with shards(2) as both:
        both.connect()
        both.play(4)
        both.pairs[0].shard.grant = False
        both.play(40)
        before = both.stored()
        assert before[0] <= 2 + 4, "no more than the credits that it had given out"
        assert sum(before) == 44
        both.pairs[0].shard.grant_now()
        both.play(20)
        assert both.stored() == [before[0] + 10, before[1] + 10]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("keep_log", [True, False])
def test_a_dead_shard_holds_nobody_back_and_gets_what_it_missed(number: int, keep_log: bool) -> None:
    with shards(2) as both:
        both.connect()
        both.play(10)
        before = both.stored()[number]
        both.kill(number, keep_log=keep_log)
        both.play(50)
        assert both.pairs[number].session.unacknowledged <= 4
        both.turn(10, seconds=2.0)
        assert not both.pairs[number].session.connected
        both.play(50)
        assert both.stored()[number] == before
        both.revive(number)
        both.until(lambda: both.sink.unacknowledged == 0, seconds_each=0.5)
        both.play(20)
        numbers = sorted(number for pair in both.pairs for number in pair.numbers())
        assert numbers == list(range(both.produced)), "nothing is lost, nothing counted twice"
        assert both.stored()[number] >= before + 10, "its turn comes again"


@pytest.mark.parametrize("count", [10, 300])
def test_games_are_told_to_a_shard_that_is_there_each_once(count: int) -> None:
    """300: more than an actor keeps while no shard is there."""

    def told(number: int) -> list[float]:
        shard = both.pairs[number].shard
        return [float(message.columns["ret"][0]) for message in shard.received if message.kind == "episodes"]

    def play(first: int) -> None:
        for number in range(first, first + count):
            both.sink.episodes(a_game(float(number)))
            both.turn()

    with shards(2) as both:
        both.connect()
        play(0)
        assert (told(0), told(1)) == ([float(number) for number in range(count)], [])
        both.kill(0, keep_log=True)
        both.turn(10, seconds=2.0)
        assert not both.pairs[0].session.connected
        play(count)
        assert told(1) == [float(number) for number in range(count, 2 * count)]
        both.revive(0)
        both.until(lambda: both.pairs[0].session.connected, seconds_each=0.5)
        play(2 * count)
        assert told(0)[count:] == [float(number) for number in range(2 * count, 3 * count)]
        assert sorted(told(0) + told(1)) == [float(number) for number in range(3 * count)]
        assert both.sink.episodes_dropped == 0


def test_games_wait_while_no_shard_is_there_and_the_oldest_of_too_many_are_counted() -> None:
    with shards(2) as both:
        for number in range(300):
            both.sink.episodes(a_game(float(number)))
        assert both.sink.episodes_dropped == 300 - 256
        both.connect()
        both.turn(3)
        told = [m.columns["ret"][0] for pair in both.pairs for m in pair.shard.received if m.kind == "episodes"]
        assert sorted(told) == [float(number) for number in range(44, 300)]


def test_the_slot_is_that_of_the_first_shard_which_answers() -> None:
    with shards(2) as both:
        both.dead.add(0)
        both.until(lambda: both.sink.welcome is not None)
        assert both.sink.welcome == both.pairs[1].session.welcome
        both.play(10)
        both.dead.clear()
        both.until(lambda: both.pairs[0].session.connected, seconds_each=0.5)
        assert both.sink.welcome == both.pairs[0].session.welcome


@settings(max_examples=40)
@given(
    script=st.lists(
        st.tuples(
            st.sampled_from(["chunk", "chunk", "chunk", "turn", "kill", "revive", "full", "grant"]), st.integers(0, 2)
        ),
        max_size=40,
    ),
)
def test_whatever_happens_to_whichever_shard_every_chunk_arrives_once(script: list[tuple[str, int]]) -> None:
    with shards(3, window=2) as three:
        for event, number in script:
            shard = three.pairs[number].shard
            if event == "chunk":
                three.sink.encode(a_chunk(three.produced))
                three.produced += 1
            elif event == "turn":
                three.turn(1, 0.4)
            elif event == "kill":
                three.kill(number, keep_log=True)
            elif event == "revive":
                three.revive(number)
            elif event == "full":
                shard.grant = False
            elif number not in three.dead:
                shard.grant_now()
        for number, pair in enumerate(three.pairs):
            three.revive(number)
            pair.shard.grant_now()
        three.until(lambda: three.sink.unacknowledged == 0, seconds_each=0.5)
        assert sorted(number for pair in three.pairs for number in pair.numbers()) == list(range(three.produced))
        assert three.sink.held_transitions == 0


def test_a_blocked_sink_sleeps_until_a_credit_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    with shards(4) as four:
        four.connect()
        for pair in four.pairs:
            pair.shard.grant = False
        for number in range(17):
            four.sink.encode(a_chunk(number))
        four.turn(3)
        assert four.sink.waiting == 1
        wakes: list[object] = []
        poll = zmq.Poller.poll
        monkeypatch.setattr(zmq.Poller, "poll", lambda poller, timeout: wakes.append(poll(poller, timeout)))
        credit = threading.Timer(0.5, four.pairs[2].shard.grant_now)
        credit.start()
        while four.sink.waiting:
            four.sink.poll(30.0)
        credit.join()
        assert len(wakes) <= 3, "one wait until the credit came, at most a few more"


def test_an_actor_without_shards_is_refused() -> None:
    with pytest.raises(ValueError, match="--replay-ingest"):
        MultiShard([])

"""Several shards as one sink: even inserts, and a shard that is full, dead or new holds no other back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import zmq
from hypothesis import given, settings, strategies as st
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

    def encode(self, chunks: int = 1) -> None:
        for _ in range(chunks):
            self.sink.encode(a_chunk(self.produced))
            self.produced += 1

    def play(self, chunks: int) -> None:
        """As an actor does: a chunk, and no other before it was taken."""
        for _ in range(chunks):
            self.encode()
            self.turn()
            assert not self.sink.waiting, "the actor stands still"

    def numbers(self) -> list[int]:
        """Those of the chunks that are stored, in order."""
        return sorted(number for pair in self.pairs for number in pair.numbers())

    def told(self, shard: int) -> list[float]:
        """The games that it was told of."""
        received = self.pairs[shard].shard.received
        return [float(message.columns["ret"][0]) for message in received if message.kind == "episodes"]

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


def a_game(game_return: float) -> Message:
    columns = {"ret": np.array([game_return], np.float32), "epsilon": np.zeros(1, np.float32)}
    columns |= {name: np.zeros(1, np.int32) for name in ("length", "raw", "env")}
    columns |= {"cut": np.zeros(1, np.uint8), "pv": np.zeros(1, np.int64)}
    return Message("episodes", {"actor": "actor-0", "inc": "i1"}, columns)


@contextmanager
def shards(count: int, window: int = 4, *, connected: bool = True) -> Iterator[Shards]:
    made = Shards(count, window)
    try:
        if connected:
            made.connect()
        yield made
    finally:
        made.sink.close()
        for pair in made.pairs:
            pair.shard.server.close()


@pytest.mark.parametrize("count", [2, 4, 16])
def test_shards_that_answer_at_once_are_given_the_same_number_of_chunks(count: int) -> None:
    with shards(count) as all_of_them:
        all_of_them.play(10 * count)
        seen = [[chunk.sequence for chunk in pair.shard.stored] for pair in all_of_them.pairs]
        assert seen == [list(range(10))] * count, "each shard sees no gap"


def test_credit_of_every_shard_is_used_before_the_actor_waits() -> None:
    with shards(2, window=3) as both:
        for pair in both.pairs:
            pair.shard.grant = False
        both.encode(7)
        assert [pair.session.waiting for pair in both.pairs] == [3, 3]
        assert (both.sink.waiting, both.sink.unacknowledged, both.sink.held_transitions) == (1, 7, 21)
        both.turn(2)
        assert (both.stored(), both.sink.waiting) == ([3, 3], 1), "no shard has a credit for the last one"
        both.pairs[1].shard.grant_now()
        both.until(lambda: both.sink.unacknowledged == 0)
        assert (both.stored(), both.sink.held_transitions) == ([3, 4], 0)
        assert both.sink.total("acknowledged_transitions") == 21


def test_what_may_be_sent_now_is_what_does_not_wait() -> None:
    with shards(1, window=3, connected=False) as one:
        (pair,) = one.pairs
        pair.shard.least_version = 5
        assert (one.sink.credits, one.sink.least_version) == (0, None)
        one.connect()
        assert (one.sink.credits, one.sink.least_version) == (3, 5)
        pair.shard.grant = False
        for left in (2, 1, 0, -1):
            one.encode()
            assert one.sink.credits == left
        one.turn()
        assert one.sink.credits == -1, "what was sent has used its credit"


def test_a_full_shard_takes_nothing_and_holds_nobody_back() -> None:
    with shards(2) as both:
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
        assert both.numbers() == list(range(both.produced)), "nothing is lost, nothing counted twice"
        assert both.stored()[number] >= before + 10, "its turn comes again"


@pytest.mark.parametrize("count", [10, 300])
def test_games_are_told_to_a_shard_that_is_there_each_once(count: int) -> None:
    """300: more than an actor keeps while no shard is there."""

    def play(first: int) -> list[int]:
        games = list(range(first, first + count))
        for number in games:
            both.sink.episodes(a_game(float(number)))
            both.turn()
        return games

    with shards(2) as both:
        games = play(0)
        assert (both.told(0), both.told(1)) == (games, [])
        both.kill(0, keep_log=True)
        both.turn(10, seconds=2.0)
        assert not both.pairs[0].session.connected
        meanwhile = play(count)
        assert both.told(1) == meanwhile
        both.revive(0)
        both.until(lambda: both.pairs[0].session.connected, seconds_each=0.5)
        games += play(2 * count)
        assert (both.told(0), both.told(1), both.sink.episodes_dropped) == (games, meanwhile, 0)


def test_games_wait_while_no_shard_is_there_and_the_oldest_of_too_many_are_counted() -> None:
    with shards(2, connected=False) as both:
        for number in range(300):
            both.sink.episodes(a_game(float(number)))
        assert both.sink.episodes_dropped == 300 - 256
        both.connect()
        both.turn(3)
        assert sorted(both.told(0) + both.told(1)) == list(range(44, 300))


def test_the_slot_is_that_of_the_first_shard_which_answers() -> None:
    with shards(2, connected=False) as both:
        both.dead.add(0)
        both.until(lambda: both.sink.welcome is not None)
        assert both.sink.welcome == both.pairs[1].session.welcome
        both.play(10)
        both.dead.clear()
        both.until(lambda: both.pairs[0].session.connected, seconds_each=0.5)
        assert both.sink.welcome == both.pairs[0].session.welcome


@settings(max_examples=80)
@given(
    count=st.sampled_from([1, 3]),
    window=st.integers(1, 5),
    script=st.lists(
        st.tuples(
            st.sampled_from(["chunk", "chunk", "chunk", "turn", "kill", "lose", "restart", "revive", "full", "grant"]),
            st.integers(0, 2),
        ),
        max_size=40,
    ),
)
def test_whatever_happens_to_whichever_shard_every_chunk_arrives_once(
    count: int, window: int, script: list[tuple[str, int]]
) -> None:
    with shards(count, window, connected=False) as some:
        for event, drawn in script:
            number = drawn % count
            shard = some.pairs[number].shard
            if event == "chunk":
                some.encode()
            elif event == "turn":
                some.turn(1, 0.4)
            elif event == "kill":
                some.kill(number, keep_log=True)
            elif event == "lose":  # the connection breaks, with everything that was on its way
                shard.mute = True
                some.turn(1, 0.3)
                some.revive(number)
                shard.restart(keep_log=True)
            elif event == "restart":
                shard.restart(keep_log=True)
            elif event == "revive":
                some.revive(number)
            elif event == "full":
                shard.grant = False
            elif number not in some.dead:
                shard.grant_now()
        for number, pair in enumerate(some.pairs):
            some.revive(number)
            pair.shard.grant_now()
        some.until(lambda: some.sink.unacknowledged == 0, seconds_each=0.5)
        assert some.numbers() == list(range(some.produced))
        for pair in some.pairs:
            assert pair.numbers() == sorted(pair.numbers()), "in order"
            assert pair.session.produced_transitions == pair.session.acknowledged_transitions == 3 * len(pair.numbers())
        assert some.sink.held_transitions == 0


def test_one_shard_that_is_there_is_told_everything_and_the_others_the_steps() -> None:
    def told() -> list[str]:
        """The last sign of life that each shard was given."""
        return [[kind for kind in pair.shard.kinds() if kind in ("heartbeat", "alive")][-1] for pair in some.pairs]

    with shards(4) as some:
        some.turn(3, seconds=1.1)
        home = told().index("heartbeat")
        assert sorted(told()) == ["alive"] * 3 + ["heartbeat"]
        some.kill(home, keep_log=True)
        some.until(lambda: not some.pairs[home].session.connected, seconds_each=0.5)
        some.turn(3, seconds=1.1)
        assert [number for number, kind in enumerate(told()) if kind == "heartbeat" and number != home], (
            "another takes over"
        )
        some.revive(home)
        some.until(lambda: some.pairs[home].session.connected, seconds_each=0.5)
        some.turn(3, seconds=1.1)
        assert told().index("heartbeat") == home
        assert sorted(told()) == ["alive"] * 3 + ["heartbeat"]


def test_a_blocked_sink_sleeps_until_a_credit_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    with shards(4) as four:
        for pair in four.pairs:
            pair.shard.grant = False
        four.encode(17)
        four.turn(3)
        assert four.sink.waiting == 1
        wakes: list[object] = []
        poll = zmq.Poller.poll
        monkeypatch.setattr(zmq.Poller, "poll", lambda poller, timeout: wakes.append(None) or poll(poller, timeout))
        credit = threading.Timer(0.5, four.pairs[2].shard.grant_now)
        credit.start()
        while four.sink.waiting:
            four.sink.poll(30.0)
        credit.join()
        assert len(wakes) <= 3, "one wait until the credit came, at most a few more"


def test_an_actor_without_shards_is_refused() -> None:
    with pytest.raises(ValueError, match="--replay-ingest"):
        MultiShard([])

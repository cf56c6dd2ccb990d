"""The session against a shard that restarts, stays silent, withholds credit: every chunk arrives exactly once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rljob.actor.session import SILENCE_SECONDS

from tests.support.session_pair import Pair, a_chunk


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def test_hello_welcome_chunk_ack(pair: Pair) -> None:
    pair.until(lambda: pair.session.connected)
    welcome = pair.session.welcome
    assert welcome is not None
    assert (welcome.slot, welcome.slots, welcome.epoch, pair.session.credits) == (2, 4, 9, 4)
    for number in range(10):
        pair.session.encode(a_chunk(number))
    assert pair.session.held_transitions == 30
    pair.until(lambda: pair.session.unacknowledged == 0)
    assert pair.numbers() == list(range(10))
    assert pair.session.durable
    assert (pair.session.chunks_sent, pair.session.chunks_acknowledged, pair.session.chunks_resent) == (10, 10, 0)
    assert pair.session.acknowledged_transitions == pair.session.produced_transitions == 30


def test_without_credit_nothing_is_sent_and_a_grant_resumes(pair: Pair) -> None:
    pair.shard.grant = False
    pair.until(lambda: pair.session.connected)
    pair.session.encode(a_chunk(0))
    pair.turn(5)
    assert pair.session.waiting == 1
    assert "chunk" not in pair.shard.kinds()
    pair.shard.grant_now()
    pair.until(lambda: pair.session.unacknowledged == 0)
    assert pair.numbers() == [0]


def test_it_knows_the_oldest_weights_that_are_asked_for(pair: Pair) -> None:
    assert pair.session.least_version is None
    pair.shard.least_version = 3
    pair.until(lambda: pair.session.connected)
    assert pair.session.least_version == 3, "a welcome says so"
    pair.shard.least_version = 4
    pair.session.encode(a_chunk(0))
    pair.until(lambda: pair.session.unacknowledged == 0)
    assert pair.session.least_version == 4, "and an acknowledgement"
    pair.shard.least_version = 2
    pair.shard.grant_now()
    pair.turn()
    assert pair.session.least_version == 2, "and a credit; a learner may go back"


@pytest.mark.parametrize("keep_log", [True, False])
def test_restarted_shard_gets_what_it_did_not_acknowledge(pair: Pair, keep_log: bool) -> None:
    pair.until(lambda: pair.session.connected)
    for number in range(2):
        pair.session.encode(a_chunk(number))
    pair.until(lambda: pair.session.unacknowledged == 0)
    pair.shard.mute = True
    for number in range(2, 4):
        pair.session.encode(a_chunk(number))
    pair.turn(2)  # these two are lost with the old service
    pair.shard.mute = False
    pair.shard.restart(keep_log)
    pair.until(lambda: pair.session.unacknowledged == 0, seconds_each=0.3)
    assert pair.numbers() == [0, 1, 2, 3]
    assert pair.session.chunks_resent == 2
    assert pair.shard.kinds().count("hello") == 2


def test_lost_acknowledgement_is_asked_for_again(pair: Pair) -> None:
    pair.until(lambda: pair.session.connected)
    pair.session.encode(a_chunk(0))
    pair.session.poll()
    pair.shard.mute = True
    pair.shard.serve()
    pair.shard.mute = False
    pair.until(lambda: pair.session.unacknowledged == 0, seconds_each=0.5)
    assert pair.numbers() == [0]
    assert pair.session.chunks_resent == 1


def test_silence_is_noticed(pair: Pair) -> None:
    pair.until(lambda: pair.session.connected)
    pair.shard.mute = True
    pair.turn(3, seconds=SILENCE_SECONDS)
    assert not pair.session.connected


def test_heartbeats_go_on_every_second(pair: Pair) -> None:
    pair.until(lambda: pair.session.connected)
    pair.turn(50, seconds=0.1)
    assert pair.shard.kinds().count("heartbeat") in (5, 6)
    pair.session.close()
    pair.shard.serve()
    assert pair.shard.kinds()[-1] == "goodbye"


@settings(max_examples=60)
@given(
    script=st.lists(
        st.sampled_from(["chunk", "chunk", "chunk", "turn", "lose", "restart", "withhold", "grant"]), max_size=40
    ),
    window=st.integers(1, 5),
)
def test_whatever_happens_every_chunk_arrives_once_and_in_order(script: list[str], window: int) -> None:
    pair = Pair(window)
    produced = 0
    for event in script:
        if event == "chunk":
            pair.session.encode(a_chunk(produced))
            produced += 1
        elif event == "turn":
            pair.turn(1, 0.3)
        elif event == "lose":  # the connection breaks, with everything that was on its way
            pair.shard.mute = True
            pair.turn(1, 0.3)
            pair.shard.mute = False
            pair.shard.restart(keep_log=True)
        elif event == "restart":
            pair.shard.restart(keep_log=True)
        elif event == "withhold":
            pair.shard.grant = False
        else:
            pair.shard.grant_now()
    pair.shard.grant_now()
    pair.until(lambda: pair.session.connected and pair.session.unacknowledged == 0, seconds_each=0.5)
    assert pair.numbers() == list(range(produced))
    assert pair.session.produced_transitions == pair.session.acknowledged_transitions == 3 * produced
    assert pair.session.held_transitions == 0
    pair.close()

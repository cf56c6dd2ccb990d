"""The session against a shard that restarts, stays silent or withholds credit; and how an actor's columns are compressed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rljob.actor import compression
from rljob.actor.compression import TRIED_SEGMENTS, Compression
from rljob.actor.session import SILENCE_SECONDS

from tests.support.session_pair import Pair, a_chunk


@pytest.fixture
def pair() -> Iterator[Pair]:
    """One that is connected."""
    pair = Pair()
    pair.until(lambda: pair.session.connected)
    yield pair
    pair.close()


def arrive(pair: Pair, *numbers: int, seconds_each: float = 0.0) -> None:
    """These are sent, and all that was sent is acknowledged."""
    for number in numbers:
        pair.session.encode(a_chunk(number))
    pair.until(lambda: pair.session.unacknowledged == 0, seconds_each)


def test_hello_welcome_chunk_ack(pair: Pair) -> None:
    welcome = pair.session.welcome
    assert (welcome.slot, welcome.slots, welcome.epoch, pair.session.credits) == (2, 4, 9, 4)
    for number in range(10):
        pair.session.encode(a_chunk(number))
    assert pair.session.held_transitions == 30
    arrive(pair)
    assert (pair.numbers(), pair.session.durable) == (list(range(10)), True)
    assert (pair.session.chunks_sent, pair.session.chunks_acknowledged, pair.session.chunks_resent) == (10, 10, 0)
    assert pair.session.acknowledged_transitions == pair.session.produced_transitions == 30


def test_it_knows_the_oldest_weights_that_are_asked_for() -> None:
    pair = Pair()
    assert pair.session.least_version is None
    pair.shard.least_version = 3
    pair.until(lambda: pair.session.connected)
    assert pair.session.least_version == 3, "a welcome says so"
    pair.shard.least_version = 4
    arrive(pair, 0)
    assert pair.session.least_version == 4, "and an acknowledgement"
    pair.shard.least_version = 2
    pair.shard.grant_now()
    pair.turn()
    assert pair.session.least_version == 2, "and a credit; a learner may go back"
    pair.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_not_acknowledged_is_sent_again(pair: Pair, restarts: bool) -> None:
    pair.session.encode(a_chunk(0))
    pair.session.poll()
    pair.shard.mute = True
    pair.shard.serve()
    pair.shard.mute = False
    if restarts:
        pair.shard.restart(keep_log=False)
    arrive(pair, seconds_each=0.5)
    assert (pair.numbers()[-1], pair.session.chunks_resent, pair.shard.kinds().count("hello")) == (0, 1, 2)


def test_silence_is_noticed(pair: Pair) -> None:
    pair.shard.mute = True
    pair.turn(3, seconds=SILENCE_SECONDS)
    assert not pair.session.connected


def test_heartbeats_go_on_every_second(pair: Pair) -> None:
    pair.turn(50, seconds=0.1)
    assert pair.shard.kinds().count("heartbeat") in (5, 6)
    pair.session.close()
    pair.shard.serve()
    assert pair.shard.kinds()[-1] == "goodbye"


def standing(random: np.random.Generator) -> NDArray[Any]:
    """A rich picture that stands still, with a small thing that moves."""
    frames = np.repeat(random.integers(0, 256, (1, 84, 84), dtype=np.uint8), 56, axis=0)
    for number in range(56):
        frames[number, number : number + 4, 10:14] = 255
    return frames


def moving(random: np.random.Generator) -> NDArray[Any]:
    """A plain picture full of small things, all of which move."""
    frames = np.zeros((56, 84, 84), np.uint8)
    for frame, several in zip(frames, random.integers(0, 84, (56, 40, 2)), strict=True):
        frame[several[:, 0], several[:, 1]] = 200
    return frames


def looked_at(way: str, **columns: NDArray[Any]) -> Compression:
    found = Compression(tuple(columns), way)
    for _ in range(TRIED_SEGMENTS):
        assert way != "Auto" or not found.deltas, "nothing is chosen before all have been seen"
        found.look(columns)
    return found


def test_auto_takes_what_was_smaller() -> None:
    random = np.random.default_rng(0)
    seen = {"frames": standing(random), "frames1": moving(random), "pv": np.arange(50, dtype=np.int64)}
    assert looked_at("Auto", **seen).deltas == {"frames"}
    assert looked_at("LZ4", **seen).deltas == set()
    assert looked_at("Delta", **seen).deltas == set(seen)


def test_auto_takes_none_that_takes_much_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_WORTH_SECONDS", 0.0)
    assert looked_at("Auto", frames=standing(np.random.default_rng(0))).deltas == set()


def test_small_rows_and_columns_that_are_not_there_are_left_as_they_are() -> None:
    found = Compression(("frames", "octets"), "Auto")
    for _ in range(TRIED_SEGMENTS + 3):
        found.look({"octets": np.zeros((56, 8), np.uint8)})
    assert found.deltas == set()

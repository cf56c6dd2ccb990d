"""A stand-still of both sides is told from a slow learner, from slow actors, and with what every shard holds up."""

from dataclasses import replace

import pytest
from rljob.ingest.shard_status import ActorStatus, LimiterStatus, ShardStatus
from rljob.learner.shard_totals import STANDSTILL_SECONDS, ShardView, standstill

BLOCKED = [ActorStatus(name="actor-0", state="Blocked"), ActorStatus(name="actor-1", state="Blocked")]
FULL = ShardStatus(
    state="serving",
    items=5000,
    limiter=LimiterStatus(error=4000.0, buffer=4000.0, blocked="inserts"),
    queue_depth_batches=62.4,
)
HUNGRY = ShardStatus(
    state="serving",
    items=700,
    limiter=LimiterStatus(error=-3990.0, buffer=4000.0, blocked="samples"),
    queue_depth_batches=0.1,
)
LONG = STANDSTILL_SECONDS + 1


def shard(index: int, status: ShardStatus | None, *, subscribed: bool = True, quiet: bool = False) -> ShardView:
    return ShardView(index, subscribed, quiet, status)


def test_the_sentence_names_each_shard_and_what_it_holds_up() -> None:
    assert standstill(LONG, [shard(0, FULL), shard(1, HUNGRY)], BLOCKED) == (
        "the learner has waited more than 10 s for a batch while all 2 actors wait to insert: "
        "replay-0 blocks inserts, +4,000 samples from its ratio (errorBuffer 4,000); "
        "replay-1 waits for inserts, -3,990 samples from its ratio (errorBuffer 4,000)"
    )


@pytest.mark.parametrize(
    ("view", "cause"),
    [
        (shard(0, None), "does not answer the learner"),
        (shard(0, FULL, subscribed=False, quiet=True), "does not answer the learner"),
        (shard(0, FULL, quiet=True), "is silent"),
        (shard(0, FULL, subscribed=False), "has not accepted the learner's subscription"),
        (shard(0, replace(FULL, state="filling")), "is filling with 5000 transitions"),
        (shard(0, replace(FULL, limiter=LimiterStatus(error=3.0, buffer=9.0, blocked="none"))), "limits neither side"),
        (shard(0, ShardStatus(state="serving")), "limits neither side"),
    ],
)
def test_every_state_of_a_shard_is_a_cause(view: ShardView, cause: str) -> None:
    assert f"replay-0 {cause}" in standstill(LONG, [view], BLOCKED)


@pytest.mark.parametrize(
    ("waited", "actors"),
    [
        (STANDSTILL_SECONDS - 1, BLOCKED),
        (LONG, []),
        (LONG, [BLOCKED[0], ActorStatus(name="actor-1", state="Running")]),
        (LONG, [ActorStatus(name="actor-1", state="Lost")]),
    ],
    ids=["not long enough", "no actors", "one plays", "one is lost"],
)
def test_where_something_moves_nothing_is_said(waited: float, actors: list[ActorStatus]) -> None:
    assert standstill(waited, [shard(0, FULL)], actors) == ""


def test_one_that_is_lost_does_not_hide_that_the_others_stand_still() -> None:
    assert "the one actor waits" in standstill(
        LONG, [shard(0, FULL)], [BLOCKED[0], ActorStatus(name="actor-1", state="Lost")]
    )

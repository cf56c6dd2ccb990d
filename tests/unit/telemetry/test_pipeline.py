"""What one more of each part brings, against queues that are simulated job by job."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rljob.telemetry.pipeline import SLOWEST_ALONE, Pipeline, pipeline

Figures = dict[str, float]
STEPS = 20
"""The steps of a chunk."""


def simulated(actor: float, learner: float, actors: int, places: int, chunks: int = 4000) -> Figures:
    """The figures of actors that put chunks into a queue of so many places and of a learner that takes them: a chunk costs each
    its mean seconds, drawn anew for every one; an actor holds its chunk until there is a place for it."""
    draw = random.Random(7)
    playing = [(draw.expovariate(1 / actor), number) for number in range(actors)]
    heapq.heapify(playing)
    held: deque[tuple[float, int]] = deque()
    queue, free_at, learner_idle, blocked, now, learned = 0, 0.0, True, 0.0, 0.0, 0
    busy = 0.0
    while learned < chunks:
        now = min(playing[0][0] if playing else math.inf, math.inf if learner_idle else free_at)
        if playing and playing[0][0] == now:
            _, number = heapq.heappop(playing)
            held.append((now, number))
        else:
            learner_idle, learned = True, learned + 1
        while held and queue < places:
            since, number = held.popleft()
            blocked, queue = blocked + now - since, queue + 1
            heapq.heappush(playing, (now + draw.expovariate(1 / actor), number))
        if learner_idle and queue:
            took = draw.expovariate(1 / learner)
            queue, learner_idle, free_at, busy = queue - 1, False, now + took, busy + took
    return {
        "steps_per_second": STEPS * learned / now,
        "actors_running": float(actors),
        "learner_wait_fraction": max(0.0, 1 - busy / now),
        "actors_blocked_fraction": blocked / (actors * now),
    }


@pytest.mark.parametrize("actors", [1, 2, 4])
@pytest.mark.parametrize("share", [0.3, 0.8, 1.0, 1.3, 3.0])
def test_what_another_actor_brings_is_what_it_is_said_to_bring(actors: int, share: float) -> None:
    """``share``: the learner's speed beside that of all actors; a short queue, in which both wait for each other now and then."""
    learner = 0.1 / actors / share
    before, after = (simulated(0.1, learner, count, places=4) for count in (actors, actors + 1))
    parts = pipeline(before)
    assert parts is not None
    assert parts.steps_per_second(actors) == pytest.approx(before["steps_per_second"], rel=0.01)
    gain = after["steps_per_second"] / before["steps_per_second"]
    assert parts.steps_per_second(actors + 1) / parts.steps_per_second(actors) == pytest.approx(gain, rel=0.04)
    assert parts.knee() == pytest.approx(actors * share, rel=0.07)


def test_parts_that_take_turns_gain_as_such() -> None:
    """Each waits while the other works: half as long for one is a quarter less for both."""
    parts = pipeline(
        {
            "steps_per_second": 100.0,
            "actors_running": 1.0,
            "learner_wait_fraction": 0.5,
            "actors_blocked_fraction": 0.5,
        }
    )
    assert parts is not None
    assert parts.overlap == pytest.approx(1.0)
    assert parts.steps_per_second(1) == pytest.approx(100)
    assert parts.steps_per_second(2) == pytest.approx(100 / 0.75)


def test_a_busy_shard_is_worth_another() -> None:
    figures = {
        "steps_per_second": 1000.0,
        "actors_running": 4.0,
        "learner_wait_fraction": 0.5,
        "actors_blocked_fraction": 0.6,
        "stage/replay/idle": 0.02,
        "stage/replay/insert": 0.98,
    }
    parts = pipeline(figures)
    assert parts is not None
    assert parts.steps_per_second(5) == pytest.approx(1000, rel=0.02)
    assert parts.steps_per_second(4, shards=2) == pytest.approx(1800, rel=0.1)


def test_a_link_that_is_never_empty_is_worth_a_faster_one() -> None:
    """Two actors whose sockets hold three messages on average; on one machine the same bytes are but a slow reader."""
    figures = {
        "steps_per_second": 1000.0,
        "actors_running": 2.0,
        "learner_wait_fraction": 0.4,
        "actors_blocked_fraction": 0.5,
        "processes/actor/send_queue_bytes": 9000.0,
        "processes/actor/message_bytes": 6000.0,
    }
    parts = pipeline(figures)
    assert parts is not None
    assert parts.steps_per_second(2, ways=2) == pytest.approx(1600, rel=0.1)
    assert parts.steps_per_second(3) == pytest.approx(1000, rel=0.02)
    seldom = pipeline(figures | {"processes/actor/send_queue_bytes": 30.0})
    assert seldom is not None
    assert seldom.steps_per_second(2, ways=2) == pytest.approx(1000, rel=0.02)
    here = pipeline(figures, cores=2)
    assert here is not None
    assert here.way_seconds == 0


def test_time_without_a_core_is_no_work() -> None:
    """Two roles on one core, which each could fill: alone each makes twice as much, together another core doubles it."""
    figures = {
        "steps_per_second": 500.0,
        "actors_running": 1.0,
        "learner_wait_fraction": 0.0,
        "actors_blocked_fraction": 0.0,
        **{
            f"processes/{role}/{name}": 0.5
            for role in ("actor", "learner")
            for name in ("cpu_cores", "core_wait_cores")
        },
    }
    parts = pipeline(figures, cores=1)
    assert parts is not None
    assert 1 / parts.actor_seconds == pytest.approx(1000)
    assert parts.steps_per_second(1) == pytest.approx(500)
    assert parts.steps_per_second(2) == pytest.approx(500)
    assert parts.steps_per_second(1, further_cores=1) == pytest.approx(1000, rel=0.02)


def test_cores_that_others_take_are_not_counted_on() -> None:
    figures = {
        "steps_per_second": 500.0,
        "actors_running": 1.0,
        "learner_wait_fraction": 0.6,
        "actors_blocked_fraction": 0.0,
        "processes/actor/cpu_cores": 0.8,
        "processes/actor/core_wait_cores": 0.2,
        "processes/learner/cpu_cores": 0.4,
        "processes/learner/core_wait_cores": 0.6,
    }
    alone, busy = (pipeline(figures | more, cores=2) for more in ({"processes/learner/core_wait_cores": 0.0}, {}))
    assert alone is not None
    assert busy is not None
    assert alone.cores == pytest.approx(1.2 + 0.6)
    assert busy.cores == pytest.approx(1.2)


def test_before_anything_is_learned_there_is_nothing_to_say() -> None:
    learning = simulated(0.1, 0.1, 1, places=4, chunks=50)
    for missing in (
        {"steps_per_second": 0.0},
        {"actors_running": 0.0},
        {"learner_wait_fraction": 1.0},
        {"steps_per_second": math.nan},
    ):
        assert pipeline(learning | missing) is None
    assert pipeline({}) is None


SHARE = st.floats(0, 1)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "steps_per_second",
                "actors_running",
                "learner_wait_fraction",
                "actors_blocked_fraction",
                "stage/replay/insert",
                *(
                    f"processes/{role}/{name}"
                    for role in ("actor", "learner")
                    for name in ("cpu_cores", "core_wait_cores")
                ),
            ]
        ),
        st.one_of(SHARE, st.floats(-1e15, 1e15)),
    ),
    st.sampled_from([None, 0.5, 2.0, 64.0]),
)
def test_more_of_anything_never_costs_steps(figures: Figures, cores: float | None) -> None:
    parts = pipeline(figures, cores=cores)
    if parts is None:
        return
    assert 1 <= parts.overlap <= SLOWEST_ALONE
    now = parts.steps_per_second(2)
    assert math.isfinite(now)
    assert now > 0
    least = now * (1 - 1e-9)
    assert parts.steps_per_second(3) >= least
    assert parts.steps_per_second(2, 2) >= least
    assert parts.steps_per_second(2, ways=2.0) >= least
    assert parts.steps_per_second(2, learners=2.0) >= least
    assert parts.steps_per_second(2, further_cores=1.0) >= least
    assert parts.knee() > 0


def test_a_further_shard_saves_inserts_and_no_draws() -> None:
    """Each batch is asked of every shard."""
    figures = {
        "steps_per_second": 100.0,
        "actors_running": 1.0,
        "learner_wait_fraction": 0.8,
        "actors_blocked_fraction": 0.8,
        "stage/replay/poll": 0.1,
        "stage/replay/ingest": 0.3,
        "stage/replay/sample": 0.6,
    }
    for shards in (1, 3):
        parts = pipeline(figures, shards=shards)
        assert parts is not None
        assert parts.shard_seconds(shards) == pytest.approx(0.9 / 100)
        assert parts.shard_seconds(2 * shards) == pytest.approx((0.6 + 0.3 / 2) / 100)


def test_the_knee_is_where_actors_make_as_much_as_the_rest_takes() -> None:
    parts = Pipeline(actor_seconds=1e-3, learner_seconds=1e-4, replay_seconds=4e-4)
    assert parts.knee() == pytest.approx(2.5)
    assert parts.knee(shards=4) == pytest.approx(10)
    assert parts.steps_per_second(10, 4) / parts.steps_per_second(9, 4) > 1.09
    assert parts.steps_per_second(14, 4) / parts.steps_per_second(13, 4) < 1.001

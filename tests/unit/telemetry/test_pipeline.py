"""What one more of each part brings, against queues that are simulated job by job."""

import heapq
import math
import random
from collections import deque

import pytest
from hypothesis import given, strategies as st
from rljob.telemetry.sizing import SLOWEST_ALONE, Pipeline, pipeline

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
    assert parts.steps_per_second(actors) == pytest.approx(before["steps_per_second"], rel=0.01)
    gain = after["steps_per_second"] / before["steps_per_second"]
    assert parts.steps_per_second(actors + 1) / parts.steps_per_second(actors) == pytest.approx(gain, rel=0.04)
    assert parts.knee() == pytest.approx(actors * share, rel=0.07)


def figures(steps: float, actors: float, wait: float, blocked: float, **more: float) -> Figures:
    """``more``: figures of processes and stages, whose names have a slash for each double underscore here."""
    return {
        "steps_per_second": steps,
        "actors_running": actors,
        "learner_wait_fraction": wait,
        "actors_blocked_fraction": blocked,
        **{name.replace("__", "/"): value for name, value in more.items()},
    }


BUSY = figures(1000, 4, 0.5, 0.6, stage__replay__idle=0.02, stage__replay__insert=0.98)
LINK = figures(1000, 2, 0.4, 0.5, processes__actor__send_queue_bytes=9000, processes__actor__message_bytes=6000)
"""Two actors whose sockets hold three messages on average."""
ONE_CORE = figures(500, 1, 0, 0) | {
    f"processes/{role}/{name}": 0.5 for role in ("actor", "learner") for name in ("cpu_cores", "core_wait_cores")
}
"""Two roles on one core, which each could fill."""


@pytest.mark.parametrize(
    ("given", "cores", "more", "steps_per_second", "rel"),
    [
        # Each waits while the other works: half as long for one is a quarter less for both.
        (figures(100, 1, 0.5, 0.5), None, {"actors": 1}, 100, None),
        (figures(100, 1, 0.5, 0.5), None, {"actors": 2}, 100 / 0.75, None),
        # A busy shard is worth another.
        (BUSY, None, {"actors": 5}, 1000, 0.02),
        (BUSY, None, {"actors": 4, "shards": 2}, 1800, 0.1),
        # A link that is never empty is worth a faster one.
        (LINK, None, {"actors": 2, "ways": 2}, 1600, 0.1),
        (LINK, None, {"actors": 3}, 1000, 0.02),
        (LINK | {"processes/actor/send_queue_bytes": 30.0}, None, {"actors": 2, "ways": 2}, 1000, 0.02),
        # Time without a core is no work: together another core doubles what they make.
        (ONE_CORE, 1, {"actors": 1}, 500, None),
        (ONE_CORE, 1, {"actors": 2}, 500, None),
        (ONE_CORE, 1, {"actors": 1, "further_cores": 1}, 1000, 0.02),
    ],
)
def test_more_of_a_part_brings_what_the_others_leave_it(
    given: Figures, cores: float | None, more: dict[str, float], steps_per_second: float, rel: float | None
) -> None:
    assert pipeline(given, cores=cores).steps_per_second(**more) == pytest.approx(steps_per_second, rel=rel)


def test_what_the_parts_take_is_told_by_waits_sockets_and_cores() -> None:
    turns, alone = pipeline(figures(100, 1, 0.5, 0.5)), pipeline(ONE_CORE, cores=1)
    assert (turns.overlap, 1 / alone.actor_seconds) == (pytest.approx(1.0), pytest.approx(1000))
    assert pipeline(LINK, cores=2).way_seconds == 0, "on one machine the same bytes are but a slow reader"


def test_cores_that_others_take_are_not_counted_on() -> None:
    busy = figures(
        500, 1, 0.6, 0, processes__actor__cpu_cores=0.8, processes__actor__core_wait_cores=0.2,
        processes__learner__cpu_cores=0.4, processes__learner__core_wait_cores=0.6,
    )  # fmt: skip
    found = [pipeline(busy | more, cores=2).cores for more in ({"processes/learner/core_wait_cores": 0.0}, {})]
    assert found == pytest.approx([1.2 + 0.6, 1.2])


def test_before_anything_is_learned_there_is_nothing_to_say() -> None:
    learning = simulated(0.1, 0.1, 1, places=4, chunks=50)
    lacks = [
        ("steps_per_second", 0.0),
        ("actors_running", 0.0),
        ("learner_wait_fraction", 1.0),
        ("steps_per_second", math.nan),
    ]
    assert [pipeline(each) for each in ({}, *(learning | {name: none} for name, none in lacks))] == [None] * 5


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
    assert 0 < now < math.inf
    for more in ({"actors": 3}, {"shards": 2}, {"ways": 2.0}, {"learners": 2.0}, {"further_cores": 1.0}):
        assert parts.steps_per_second(**{"actors": 2, **more}) >= now * (1 - 1e-9), more
    assert parts.knee() > 0


@pytest.mark.parametrize("shards", [1, 3])
def test_a_further_shard_saves_inserts_and_no_draws(shards: int) -> None:
    """Each batch is asked of every shard."""
    busy = figures(100, 1, 0.8, 0.8, stage__replay__poll=0.1, stage__replay__ingest=0.3, stage__replay__sample=0.6)
    parts = pipeline(busy, shards=shards)
    found = [parts.shard_seconds(count) for count in (shards, 2 * shards)]
    assert found == pytest.approx([0.9 / 100, (0.6 + 0.3 / 2) / 100])


def test_the_knee_is_where_actors_make_as_much_as_the_rest_takes() -> None:
    parts = Pipeline(actor_seconds=1e-3, learner_seconds=1e-4, replay_seconds=4e-4)
    assert (parts.knee(), parts.knee(shards=4)) == (pytest.approx(2.5), pytest.approx(10))
    steps = {actors: parts.steps_per_second(actors, 4) for actors in (9, 10, 13, 14)}
    assert (steps[10] / steps[9] > 1.09, steps[14] / steps[13] < 1.001) == (True, True)

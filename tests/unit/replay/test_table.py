"""The table against a plain list of chunks, from which the oldest are dropped one at a time."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rljob.experience import Segment, transition_layout
from rljob.experience.ring import Slots
from rljob.ingest.table import StoredChunk
from rljob.observation import frames
from rljob.replay.limiter import LimiterConfig, SamplesPerInsertLimiter
from rljob.replay.selectors import Prioritized
from rljob.replay.table import Capacity, ReplayTable
from rljob.wire import RawMessage, decode_header, encode
from rljob.wire.schema import DRAWN

from tests.support.experience import make_chunk

LAYOUT = transition_layout(8, frames((3,), np.float32, 4), 2)


def arrival(sequence: int, steps: int = 8, priority: float = 1.0) -> tuple[Segment, RawMessage]:
    """A chunk, and the message it came in; shorter chunks have fewer bytes."""
    chunk = make_chunk("actor-0", sequence, LAYOUT, steps, priority=np.full(steps, priority, np.float32))
    chunk.check()
    return chunk, decode_header(encode(chunk.to_message()))


def make_table(capacity: Capacity, *, first_generation: int = 1) -> ReplayTable:
    slots = Slots(LAYOUT, capacity.chunks(LAYOUT))
    limiter = SamplesPerInsertLimiter(LimiterConfig(0.0, 1, 0.0))
    return ReplayTable(slots, Prioritized(slots.capacity_steps, 1.0), limiter, capacity, first_generation)


def stored(table: ReplayTable) -> list[StoredChunk]:
    return [table.chunk(ordinal) for ordinal in range(table.oldest, table.head)]


BYTES_OF_A_FULL_CHUNK = arrival(0)[1].nbytes
FULL = (
    "the replay is full with 36 of 80 transitions, since episodes are short and each brings a stack of 4 frames; "
    "environment.frameStack: 1 has room for more"
)


@given(
    steps_limit=st.integers(8, 100),
    bytes_limit=st.none() | st.integers(1, 14 * BYTES_OF_A_FULL_CHUNK),
    batches=st.lists(st.lists(st.integers(1, 8), max_size=12), max_size=12),
)
@settings(max_examples=150)
def test_both_capacities_against_a_list(steps_limit: int, bytes_limit: int | None, batches: list[list[int]]) -> None:
    table = make_table(Capacity(steps_limit, bytes_limit or 0))
    kept: list[tuple[int, int, int, float]] = []  # generation, steps, bytes, priority
    slots_in_use = table.slots.capacity
    generation = 0
    for batch in batches:
        arrivals, expected_evictions = [], []
        for steps in batch:
            generation += 1
            arrivals.append(arrival(generation, steps, priority=float(generation)))
            size = sum(len(part) for part in encode(arrivals[-1][0].to_message())[1:])
            while kept and (
                sum(k[1] for k in kept) + steps > steps_limit
                or (bytes_limit is not None and sum(k[2] for k in kept) + size > bytes_limit)
                or len(kept) == slots_in_use
            ):
                expected_evictions.append(kept.pop(0)[0])
            kept.append((generation, steps, size, float(generation)))
        assert [chunk.generation for chunk in table.insert(arrivals)] == expected_evictions
        assert [chunk.generation for chunk in stored(table)] == [k[0] for k in kept]
        assert table.items == sum(k[1] for k in kept) <= steps_limit
        assert table.nbytes == sum(k[2] for k in kept) == sum(chunk.nbytes for chunk in stored(table))
        # Only a chunk that is alone may be larger than the limit: a limit of less than a chunk stores one.
        assert bytes_limit is None or table.nbytes <= bytes_limit or len(table) == 1
        slots = [chunk.slot for chunk in stored(table)]
        assert len(set(slots)) == len(slots)
        weights = np.zeros(table.slots.capacity_steps)
        for chunk, (_, steps, _, priority) in zip(stored(table), kept, strict=True):
            weights[chunk.slot * LAYOUT.length :][:steps] = priority
        np.testing.assert_array_equal(table.selector.tree.leaves[: len(weights)], weights)
    assert table.limiter.inserted == sum(sum(batch) for batch in batches)


def test_memory_follows_what_is_stored() -> None:
    """Freed slots are used again before fresh ones, so a byte limit bounds the slots ever touched."""
    table = make_table(Capacity(800, 3 * BYTES_OF_A_FULL_CHUNK))
    touched = set()
    for sequence in range(50):
        table.insert([arrival(sequence)])
        touched |= {chunk.slot for chunk in stored(table)}
    assert touched == {0, 1, 2}


@pytest.mark.parametrize(
    ("capacity", "steps"), [(Capacity(80), 8), (Capacity(80), 2), (Capacity(800, 3 * BYTES_OF_A_FULL_CHUNK), 8)]
)
def test_it_is_full_where_the_oldest_goes_for_the_next(
    capacity: Capacity, steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Episodes of two steps leave most of a chunk of eight empty: the places are taken long before the steps are there."""
    table = make_table(capacity)
    assert table.fill == 0.0
    arrivals = (arrival(sequence, steps) for sequence in range(20))
    fills = list(itertools.takewhile(bool, (not table.insert([each]) and table.fill for each in arrivals)))
    assert fills == sorted(fills)
    assert (fills[0] < 0.5, fills[-1]) == (True, pytest.approx(1.0))
    assert caplog.messages == ([] if steps == 8 else [FULL])


def test_generations_are_never_given_twice() -> None:
    table = make_table(Capacity(24), first_generation=5)
    seen = []
    for start in range(0, 30, 3):
        table.insert([arrival(start + i) for i in range(3)])
        seen += [chunk.generation for chunk in stored(table)]
    assert seen == list(range(5, 35))
    restarted = make_table(Capacity(24))
    restarted.insert([arrival(0), arrival(1)], restored=[33, 34])
    assert restarted.limiter.inserted == 0, "they were counted when they first came"
    restarted.insert([arrival(2)])
    assert [chunk.generation for chunk in stored(restarted)] == [33, 34, 35]


def test_priorities_of_overwritten_slots_are_dropped_and_counted() -> None:
    table = make_table(Capacity(16))
    table.insert([arrival(0), arrival(1, steps=5)])
    drawn = table.sample([40, 24], np.random.default_rng(0))
    np.testing.assert_allclose(drawn["value"], 1 / 13)
    drawn["value"] = 3.0
    table.update_priorities(drawn)
    assert (table.stale_priorities, table.selector.tree.total) == (0, 39.0)
    table.insert([arrival(2)])
    before = table.selector.tree.leaves[: table.slots.capacity_steps].copy()
    first = drawn["slot"] < 8
    assert 0 < first.sum() < 64
    drawn["value"] = 7.0
    table.update_priorities(drawn)
    assert table.stale_priorities == first.sum()
    after = table.selector.tree.leaves[: table.slots.capacity_steps]
    assert stored(table)[-1].slot == 0, "the new chunk lies where the old one did"
    assert (after[:13].tolist(), after.sum()) == ([*before[:8], *[7.0] * 5], 8 + 35)


def test_priorities_that_are_no_numbers_or_name_nothing_are_dropped_and_counted() -> None:
    table = make_table(Capacity(16))
    table.insert([arrival(0, steps=5)])
    drawn = np.zeros(6, DRAWN)
    drawn["slot"], drawn["gen"] = (
        [0, 1, 2, 3, 6, 10_000],
        stored(table)[0].generation,
    )  # 6 lies behind the end of the short chunk
    drawn["value"] = [np.nan, np.inf, -1.0, 2.0, 2.0, 2.0]
    table.update_priorities(drawn)
    assert (table.invalid_priorities, table.stale_priorities) == (3, 2)
    assert table.selector.tree.leaves[:8].tolist() == [1.0, 1.0, 1.0, 2.0, 1.0, 0.0, 0.0, 0.0]


def test_an_insert_of_nothing_changes_nothing() -> None:
    """What a warm restart does with a slice of the log in which every chunk is damaged."""
    table = make_table(Capacity(16))
    table.insert([arrival(0)])
    assert table.insert([], restored=[]) == []
    assert (table.items, len(table), table.selector.tree.total) == (8, 1, 8.0)


def test_an_empty_table_gives_no_samples() -> None:
    with pytest.raises(ValueError, match="without weight"):
        make_table(Capacity(16)).sample(1, np.random.default_rng(0))

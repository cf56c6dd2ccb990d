"""Epsilon slots: who gets which, for how long, and what a restart remembers; and how credits are shared out."""

from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from rljob.ingest.table import LEASE_SECONDS, SlotLeases, share_credits, spread

ACTORS = tuple(f"actor-{i}" for i in range(6))
PEERS = [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("slots", [*range(1, 40), 64, 100, 257])
def test_however_many_there_are_they_lie_over_the_whole_ladder(slots: int) -> None:
    order = spread(slots)
    assert sorted(order) == list(range(slots)), "each once"
    for held in range(2, slots + 1):
        rungs = sorted(order[:held])
        assert (rungs[0], rungs[-1]) == (0, slots - 1), "both ends are there"
        widest = max(after - before for before, after in pairwise(rungs))
        assert widest <= 4 * (slots - 1) / held + 1, "no gap much wider than with the same number evenly apart"


def test_newcomers_get_the_slots_in_that_order_and_keep_them() -> None:
    leases = SlotLeases(3)
    for now in range(0, 100, 10):
        assert [leases.take(actor, "a", float(now)) for actor in ACTORS[:3]] == [0, 2, 1]


def test_an_actor_that_comes_back_gets_its_slot_even_after_its_lease() -> None:
    leases = SlotLeases(4)
    assert [leases.take(actor, "a", 0.0) for actor in ACTORS[:3]] == [0, 3, 1]
    late = 100 * LEASE_SECONDS
    # a newcomer takes the slot that no actor is expected back for
    assert [leases.take(*each, late) for each in (("actor-3", "a"), ("actor-1", "b"), ("actor-0", "b"))] == [2, 3, 0]


def test_two_incarnations_of_one_name_are_one_actor() -> None:
    leases = SlotLeases(2)
    turns = (("actor-0", "old", 0.0), ("actor-0", "new", 1.0), ("actor-1", "a", 1.0), ("actor-0", "new", 2.0))
    assert [leases.take(*turn) for turn in turns] == [0, 0, 1, 0], "the old life holds no second slot"
    assert leases.lives == [2, 1]
    assert [leases.release("actor-0") for _ in range(2)] == [0, None]


def test_restored_leases_last_for_what_remained_of_them() -> None:
    leases = SlotLeases(3)
    leases.restore([(2, "actor-0", "a", 5.0), (1, "actor-1", "a", 12.0), (7, "actor-9", "a", 12.0)], now=100.0)
    # At 104 slots 1 and 2 are still held, slot 7 is of a larger job; the lease of actor-0 ran out at 105.
    turns = (("actor-2", "a", 104.0), ("actor-1", "b", 104.0), ("actor-3", "a", 106.0))
    assert [leases.take(*turn) for turn in turns] == [0, 1, 2]


@given(
    slots=st.integers(1, 7),
    events=st.lists(
        st.tuples(st.sampled_from(["take", "release", "wait"]), st.sampled_from(ACTORS), st.floats(0.0, 20.0)),
        max_size=60,
    ),
)
@settings(max_examples=200)
def test_no_slot_is_held_by_two_actors_while_another_is_free(slots: int, events: list[tuple[str, str, float]]) -> None:
    leases, now = SlotLeases(slots), 0.0
    held: dict[str, tuple[int, float]] = {}
    for kind, actor, seconds in events:
        held = {name: lease for name, lease in held.items() if lease[1] > now}
        if kind == "wait":
            now += seconds
            leases.expire(now)
        elif kind == "release":
            slot = leases.release(actor)
            assert slot == (held.pop(actor)[0] if actor in held else None)
        else:
            slot = leases.take(actor, "a", now)
            assert 0 <= slot < slots
            if actor in held:
                assert slot == held[actor][0], "who holds a slot keeps it"
            else:
                sharers = [sum(other == s for other, _ in held.values()) for s in range(slots)]
                assert sharers[slot] == min(sharers), "no actor shares while a slot has fewer holders"
            held[actor] = (slot, now + LEASE_SECONDS)
        if len(ACTORS) <= slots:
            taken = [slot for slot, _ in held.values()]
            assert len(taken) == len(set(taken)), "a slot is held by two actors"


def test_a_single_credit_goes_round() -> None:
    wanted = dict.fromkeys(PEERS, 4)
    assert sorted(next(iter(share_credits(wanted, 0, 1, lambda n: n <= 1, turn))) for turn in range(4)) == PEERS


@given(
    st.lists(st.integers(0, 5), max_size=4),
    st.integers(0, 6),
    st.integers(1, 50),
    st.integers(0, 1000),
    st.integers(0, 9),
)
def test_room_is_used_up_evenly_and_never_passed(
    wants: list[int], outstanding: int, length: int, room: int, turn: int
) -> None:
    wanted = dict(zip(PEERS, wants, strict=False))
    grants = share_credits(wanted, outstanding, length, lambda n: n <= room, turn)
    assert sum(grants.values()) == min(sum(wants), max(0, room // length - outstanding))
    for peer, count in wanted.items():
        mine = grants.get(peer, 0)
        assert mine <= count
        assert mine == count or all(mine >= grants.get(other, 0) - 1 for other in wanted), "no peer falls behind by two"

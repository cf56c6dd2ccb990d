"""Credits are shared out in turn, and never beyond the room that the limiter has."""

from __future__ import annotations

from hypothesis import given, strategies as st
from rljob.ingest.grants import share_credits

PEERS = [b"a", b"b", b"c", b"d"]


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

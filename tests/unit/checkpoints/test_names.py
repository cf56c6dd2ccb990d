"""Names of checkpoints sort as the checkpoints do, and marks of epochs are none of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rljob.checkpoints.names import checkpoint_name, claim_name, claimed, newest_epoch, order

NUMBERS = st.tuples(st.integers(0, 999_999), st.integers(0, 999_999_999_999))


@given(NUMBERS, NUMBERS)
def test_names_sort_by_epoch_and_then_by_updates(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert order(checkpoint_name(*one)) == one
    assert (checkpoint_name(*one) < checkpoint_name(*other)) == (one < other)


def test_what_else_lies_there_is_no_checkpoint() -> None:
    for name in ("best", "epoch-000002", "step-", "step-1.partial", ".step-1.partial", "epoch-1-step-2-3", "step-٣"):
        assert order(name) is None
    assert order("step-000000000200") == (0, 200), "one from before there were epochs is older than any with one"
    assert claimed(claim_name(12)) == 12
    assert claimed(checkpoint_name(12, 1)) is None


def test_the_newest_epoch_is_taken_or_has_written() -> None:
    assert newest_epoch([]) == newest_epoch(["best", "step-5"]) == 0
    assert newest_epoch([claim_name(3), checkpoint_name(2, 900), "best"]) == 3
    assert newest_epoch([claim_name(3), checkpoint_name(4, 1)]) == 4

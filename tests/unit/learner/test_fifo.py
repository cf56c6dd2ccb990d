"""The first-in-first-out table: order, bounds, and a conservation law that holds after every step."""

from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rljob.experience import Segment, unroll_layout
from rljob.learner.unroll_order import FifoTable
from rljob.observation import frames

from tests.support.experience import make_unroll

LAYOUT = unroll_layout(3, frames((2,), np.float32))
RAW: Any = SimpleNamespace()


def unroll(number: int) -> Segment:
    return make_unroll("actor-0", number, LAYOUT)


@settings(max_examples=200)
@given(
    drops=st.booleans(),
    actions=st.lists(st.tuples(st.sampled_from(["insert", "take", "discard"]), st.integers(0, 4)), max_size=40),
)
def test_what_comes_in_is_taken_in_order_or_dropped_for_a_reason(drops: bool, actions: list[tuple[str, int]]) -> None:
    table = FifoTable(LAYOUT, 6, drops_oldest=drops)
    model: deque[int] = deque()
    number = 0
    for action, count in actions:
        if action == "insert":
            allowed = count if drops else min(count, 6 - len(model))
            assert drops or table.limiter.can_insert(allowed * 3)
            assert drops or allowed == count or not table.limiter.can_insert((allowed + 1) * 3)
            assert table.insert([(unroll(number + i), RAW) for i in range(allowed)]) == []
            model.extend(range(number, number + allowed))
            number += allowed
            while len(model) > 6:
                model.popleft()
        elif action == "take" and count <= len(model):
            assert [each.sequence for each in table.take(count)] == [model.popleft() for _ in range(count)]
        elif action == "discard":
            gone = [each for each in model if each % 5 == count]
            assert table.discard(lambda each, c=count: "odd" if each.sequence % 5 == c else None) == len(gone)
            model = deque(each for each in model if each not in gone)
        assert len(table) == len(model)
        assert table.accepted == number == table.taken + table.dropped.total() + len(table)
        assert table.head - table.oldest == len(table)
    assert set(table.dropped) <= ({"odd", "overflow"} if drops else {"odd"})


def test_more_than_there_is_cannot_be_taken_and_nothing_never_fits() -> None:
    table = FifoTable(LAYOUT, 2, drops_oldest=False)
    table.insert([(replace(unroll(0), policy_version=7), RAW)])
    assert table.oldest_version == 7
    with pytest.raises(ValueError, match="2 unrolls wanted, 1 are there"):
        table.take(2)
    with pytest.raises(ValueError, match="at least 1"):
        FifoTable(LAYOUT, 0, drops_oldest=False)

"""When a batch is due and what goes into it, against plain statements of the rule."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rljob.inference.model import ACTIVE_SECONDS, Batcher, Request, bucket_sizes


def a_request(actor: str, number: int = 0, rows: int = 4, arrived: float = 0.0) -> Request:
    return Request(
        actor, "life", 0, number, np.zeros((rows, 1, 2), np.float32), np.zeros((rows, 2, 0), np.float32), arrived
    )


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [(64, (4, 8, 16, 32, 64)), (48, (4, 8, 16, 32, 48)), (4, (4,)), (1, (4,)), (5, (4, 5))],
)
def test_buckets(largest: int, sizes: tuple[int, ...]) -> None:
    assert bucket_sizes(largest) == sizes


def test_nobody_is_waited_for_who_is_there_already() -> None:
    batcher = Batcher(64, 0.5)
    assert batcher.due_in(0.0) is None
    batcher.add(a_request("a"))
    assert batcher.due_in(0.0) == 0.0
    batcher.take()
    batcher.add(a_request("b", arrived=0.1))  # a asked a moment ago and may ask again
    assert batcher.due_in(0.2) == pytest.approx(0.4)
    batcher.add(a_request("a", 1, arrived=0.3))
    assert batcher.due_in(0.3) == 0.0
    assert [request.actor for request in batcher.take()] == ["b", "a"]
    batcher.add(a_request("a", 2, arrived=0.4 + ACTIVE_SECONDS))  # b has been gone for too long to be waited for
    assert batcher.due_in(0.4 + ACTIVE_SECONDS) == 0.0


def test_the_oldest_request_sets_the_deadline_and_a_full_batch_does_not_wait() -> None:
    batcher = Batcher(12, 0.5)
    for name in "abcd":
        batcher.add(a_request(name))
    batcher.take(), batcher.take()
    batcher.add(a_request("a", 1, arrived=0.1))
    batcher.add(a_request("b", 1, arrived=0.4))
    assert (batcher.due_in(0.4), batcher.due_in(0.7)) == (pytest.approx(0.2), 0.0)
    batcher.add(a_request("c", 1, arrived=0.4))
    assert (batcher.due_in(0.4), batcher.rows) == (0.0, 12)


@given(rows=st.lists(st.integers(1, 16), min_size=1, max_size=60), largest=st.integers(16, 40))
def test_batches_are_the_greedy_split_of_the_queue(rows: list[int], largest: int) -> None:
    batcher = Batcher(largest, 0.0)
    for number, count in enumerate(rows):
        batcher.add(a_request(str(number), number, count))
    taken = []
    while (due := batcher.due_in(0.0)) is not None:
        assert due == 0.0
        taken.append([request.rows for request in batcher.take()])
    expected: list[list[int]] = [[]]
    for count in rows:
        if sum(expected[-1]) + count > largest:
            expected.append([])
        expected[-1].append(count)
    assert taken == expected
    assert batcher.rows == len(batcher) == 0

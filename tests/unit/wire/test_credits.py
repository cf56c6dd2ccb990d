"""The small rules of the bookkeeping; `test_credits_model.py` checks both ends together under faults."""

from __future__ import annotations

import pytest
from rljob.wire.credits import CreditLedger, CreditWindow, Verdict


def test_nothing_is_sent_without_a_welcome_or_a_credit() -> None:
    window: CreditWindow[str] = CreditWindow()
    window.add(5, "a")
    window.add(6, "b")
    window.grant(3)
    assert window.next() is None
    window.welcome(-1, 1)
    assert window.next() == (5, "a")
    assert window.next() == (5, "a")
    window.sent(5)
    assert window.next() is None
    assert (window.credits, window.unsent, window.unacknowledged) == (0, 1, 2)


def test_a_welcome_lets_go_of_what_was_accepted_and_sends_the_rest_again() -> None:
    window: CreditWindow[int] = CreditWindow()
    for sequence in range(4):
        window.add(sequence, sequence)
    window.welcome(-1, 4)
    for sequence in range(4):
        window.sent(sequence)
    window.disconnected()
    assert window.acknowledge(0, 7) == 1
    assert window.credits == 0
    assert window.welcome(1, 2) == 1
    assert window.next() == (2, 2)
    assert window.unsent == 2


@pytest.mark.parametrize("sequence", [-1, 0, 2])
def test_chunks_are_numbered_without_gaps(sequence: int) -> None:
    window: CreditWindow[None] = CreditWindow()
    window.add(0, None)
    with pytest.raises(ValueError, match="gap"):
        window.add(sequence, None)


def test_only_the_next_chunk_can_have_been_sent() -> None:
    window: CreditWindow[None] = CreditWindow()
    window.add(0, None)
    with pytest.raises(ValueError, match="not the one"):
        window.sent(0)


def test_verdicts() -> None:
    ledger = CreditLedger(2)
    assert ledger.receive(b"p", 0) is Verdict.UNKNOWN
    assert ledger.hello(b"p", "actor-0", "one") == -1
    assert ledger.receive(b"p", 0) is Verdict.NO_CREDIT
    ledger.granted(b"p", 2)
    with pytest.raises(ValueError, match="window"):
        ledger.granted(b"p", 1)
    assert ledger.receive(b"p", 7) is Verdict.NEW  # a ledger that knows nothing takes the stream up where it is
    assert ledger.receive(b"p", 9) is Verdict.GAP
    assert ledger.receive(b"p", 7) is Verdict.DUPLICATE
    assert (ledger.accepted(b"p"), ledger.outstanding(b"p"), ledger.grantable(b"p")) == (7, 0, 2)


def test_a_new_hello_ends_the_session_before_it_but_not_what_was_accepted() -> None:
    ledger = CreditLedger(2)
    ledger.hello(b"p", "actor-0", "one")
    ledger.granted(b"p", 2)
    ledger.receive(b"p", 0)
    assert ledger.hello(b"q", "actor-0", "one") == 0
    assert ledger.receive(b"p", 1) is Verdict.UNKNOWN
    assert ledger.peers() == (b"q",)
    ledger.forget(b"p")
    assert ledger.knows(b"q")
    assert ledger.hello(b"r", "actor-0", "two") == -1
    assert ledger.hello(b"s", "actor-0", "one") == 0  # a late hello of the ended process does no harm
    for incarnation in range(1000):
        ledger.hello(b"t", "actor-0", str(incarnation))
    assert ledger.hello(b"s", "actor-0", "one") == -1  # but the bookkeeping of ended processes does not pile up
    assert len(ledger._accepted) <= 8
    assert ledger.stream(b"s") == ("actor-0", "one")


def test_the_welcome_of_an_earlier_hello_is_ignored() -> None:
    window: CreditWindow[None] = CreditWindow()
    window.add(0, None)
    first, second = window.hello(), window.hello()
    window.welcome(0, 5, first)
    assert (window.connected, window.credits, window.unacknowledged) == (False, 0, 1)
    window.welcome(-1, 3, second)
    assert (window.connected, window.credits, window.unacknowledged) == (True, 3, 1)


def test_a_restored_ledger_refuses_what_the_log_has() -> None:
    ledger = CreditLedger(1)
    ledger.restore("actor-0", "one", 41)
    ledger.restore("actor-0", "one", 40)
    assert ledger.hello(b"p", "actor-0", "one") == 41
    ledger.granted(b"p", 1)
    assert ledger.receive(b"p", 41) is Verdict.DUPLICATE


def test_a_window_without_credits_is_a_deadlock_and_refused() -> None:
    with pytest.raises(ValueError, match="never let a chunk through"):
        CreditLedger(0)

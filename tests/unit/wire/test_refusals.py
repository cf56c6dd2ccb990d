"""Answers to nonsense are few, per peer and in all."""

from __future__ import annotations

from rljob.wire.refusals import RefusalLimiter


def test_a_peer_gets_a_burst_and_then_one_a_second() -> None:
    now = [0.0]
    limiter = RefusalLimiter(lambda: now[0], per_peer_per_second=1.0, per_peer_burst=4)
    for now[0], answers in ((0.0, 4), (2.5, 2), (1e6, 4)):
        assert sum(limiter.allows(b"a") for _ in range(1000)) == answers
        assert limiter.allows(b"another at %d" % now[0])


def test_many_peers_together_are_bounded_and_so_is_the_memory() -> None:
    now = [0.0]
    limiter = RefusalLimiter(lambda: now[0], total_per_second=10.0, total_burst=20)
    assert sum(limiter.allows(b"%d" % peer) for peer in range(10_000)) == 20
    assert len(limiter._peers) <= 1024
    now[0] = 1.0
    assert sum(limiter.allows(b"%d" % peer) for peer in range(10_000)) == 10

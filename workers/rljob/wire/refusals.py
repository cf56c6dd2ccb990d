"""How often a sender of nonsense is answered, so that answers can't be used to amplify an attack."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_REMEMBERED_PEERS: Final = 1024


class RefusalLimiter:
    """A token bucket per peer and one for all peers (a peer gets a new name with each connection).

    Memory is bounded: the peers heard from longest ago are forgotten, and the common bucket holds for them still.
    """

    def __init__(
        self,
        clock_seconds: Callable[[], float],
        *,
        per_peer_per_second: float = 1.0,
        per_peer_burst: int = 4,
        total_per_second: float = 50.0,
        total_burst: int = 100,
    ) -> None:
        self._clock = clock_seconds
        self._rate = per_peer_per_second
        self._burst = per_peer_burst
        self._peers: OrderedDict[bytes, _Bucket] = OrderedDict()
        self._total_rate = total_per_second
        self._total_burst = total_burst
        self._total = _Bucket(total_burst, clock_seconds())

    def allows(self, peer: bytes) -> bool:
        """Whether this peer may be answered now; if so, the answer is counted."""
        now = self._clock()
        bucket = self._peers.get(peer)
        if bucket is None:
            bucket = self._peers[peer] = _Bucket(self._burst, now)
            if len(self._peers) > _REMEMBERED_PEERS:
                self._peers.popitem(last=False)
        else:
            self._peers.move_to_end(peer)
        bucket.refill(now, self._rate, self._burst)
        self._total.refill(now, self._total_rate, self._total_burst)
        if bucket.tokens < 1 or self._total.tokens < 1:
            return False
        bucket.tokens -= 1
        self._total.tokens -= 1
        return True


class _Bucket:
    __slots__ = ("tokens", "updated")

    def __init__(self, tokens: float, now: float) -> None:
        self.tokens = tokens
        self.updated = now

    def refill(self, now: float, rate: float, burst: int) -> None:
        self.tokens = min(burst, self.tokens + (now - self.updated) * rate)
        self.updated = now

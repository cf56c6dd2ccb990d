"""How many credits each actor may be given now, so that what is on the way never takes inserting past the limiter's bound."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from rljob.ingest.table import IngestTable


class Grants(Protocol):
    """Who may send how much now."""

    @property
    def least_version(self) -> int | None:
        """The oldest weights with which it may be played; None where that does not matter."""

    def share(self, wanted: Mapping[bytes, int], outstanding: Mapping[bytes, int], turn: int) -> dict[bytes, int]:
        """Credits by peer, at most what is ``wanted``. ``outstanding``: credits given out before and not used yet."""


class ByRoom:
    """As the limiter of ``table`` allows, to every actor its share."""

    least_version = None

    def __init__(self, table: IngestTable) -> None:
        self._table = table

    def share(self, wanted: Mapping[bytes, int], outstanding: Mapping[bytes, int], turn: int) -> dict[bytes, int]:
        """As of ``Grants``."""
        on_the_way = sum(outstanding.values())
        return share_credits(wanted, on_the_way, self._table.layout.length, self._table.limiter.can_insert, turn)


def share_credits(
    wanted: Mapping[bytes, int], outstanding: int, length: int, can_insert: Callable[[int], bool], turn: int
) -> dict[bytes, int]:
    """Credits by peer: all that is ``wanted`` where there is room, else one after the other, beginning with peer ``turn``.

    ``outstanding``: credits given out before and not used yet, of all peers. Each credit is a chunk of ``length`` transitions;
    ``can_insert(n)``: whether n more transitions may come. Peers that get nothing are left out.
    """
    total = sum(wanted.values())
    if not total:
        return {}
    if can_insert((outstanding + total) * length):
        return dict(wanted)
    left, grants = dict(wanted), dict[bytes, int]()
    order = deque(wanted)
    order.rotate(-turn % len(order))
    while order and can_insert((outstanding + 1) * length):
        peer = order.popleft()
        if left[peer] > 0:
            left[peer] -= 1
            outstanding += 1
            grants[peer] = grants.get(peer, 0) + 1
            order.append(peer)
    return grants

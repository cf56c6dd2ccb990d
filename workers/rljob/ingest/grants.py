"""How many credits each actor may be given now, so that what is on the way never takes inserting past the limiter's bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping


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

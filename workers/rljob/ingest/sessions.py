"""What was accepted of each actor (the other half of exactly-once), and how many credits each may be given now.

What is on the way never takes inserting past the limiter's bound.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from rljob.ingest.roster import MOST_ACTORS
from rljob.ingest.table import IngestTable


@dataclass(frozen=True, slots=True)
class Accepted:
    """What was accepted from the latest incarnation of an actor: up to which sequence number, and how many transitions."""

    incarnation: str
    sequence: int
    transitions: int


class AcceptedOfActors:
    """What was accepted of every actor that is remembered, in the order of their latest hello, oldest first."""

    def __init__(self) -> None:
        self.by_actor: dict[str, Accepted] = {}
        self.forgotten_total = 0
        self._remembered: dict[str, None] = {}  # in order; an actor may have said hello and sent nothing

    def note(self, actor: str, incarnation: str, sequence: int, transitions: int) -> None:
        """Remember that ``sequence`` was accepted, and the transitions that it brought."""
        before = self.by_actor.get(actor)
        known = before.transitions if before is not None and before.incarnation == incarnation else 0
        self.by_actor[actor] = Accepted(incarnation, sequence, known + transitions)

    def knows(self, actor: str, incarnation: str) -> bool:
        """Whether chunks of this very incarnation were accepted."""
        accepted = self.by_actor.get(actor)
        return accepted is not None and accepted.incarnation == incarnation

    def remember(self, actor: str, present: Collection[str]) -> str | None:
        """Remember that ``actor`` said hello, and answer whom that made it forget.

        Beyond ``MOST_ACTORS`` the one that said hello longest ago and is not among ``present`` is forgotten.
        """
        self._remembered.pop(actor, None)
        self._remembered[actor] = None
        if len(self._remembered) <= MOST_ACTORS:
            return None
        stranger = next((name for name in self._remembered if name not in present and name != actor), None)
        if stranger is not None:
            del self._remembered[stranger]
            self.by_actor.pop(stranger, None)
            self.forgotten_total += 1
        return stranger


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

"""What was accepted of each actor: the other half of exactly-once."""

from collections.abc import Collection
from dataclasses import dataclass

from rljob.ingest.roster import MOST_ACTORS


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

"""Epsilon slots: the place of an actor on the exploration ladder, which outlives its process."""

from collections.abc import Iterable
from dataclasses import dataclass

LEASE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Lease:
    """An epsilon slot held by an actor for another ``seconds``; 0 gives it back."""

    slot: int
    actor: str
    incarnation: str
    seconds: float


@dataclass(slots=True)
class _Held:
    actor: str
    incarnation: str
    until: float


def spread(slots: int) -> list[int]:
    """All of ``0..slots-1`` in an order of which every prefix is spread evenly: both ends, then in bit-reversed order."""
    last, bits = slots - 1, (slots - 1).bit_length()
    evenly = (last * int(f"0{place:0{bits}b}"[::-1], 2) >> bits + 1 for place in range(1 << bits))
    return list(dict.fromkeys((0, last, *evenly)))


class SlotLeases:
    """Gives each actor name a slot in ``0..slots-1`` for ``LEASE_SECONDS`` at a time; times are given by the caller.

    An actor that comes back gets the slot it had, even after its lease ran out, as long as no other has taken it. When there
    are more actors than slots, slots are shared evenly rather than refused: exploring twice in the same way beats not exploring.
    Newcomers get slots in the order of `spread`, so that a few actors explore as differently as many do.
    """

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"{slots} epsilon slots, there must be at least 1")
        self.slots = slots
        self._held: dict[int, list[_Held]] = {slot: [] for slot in spread(slots)}
        self._last: dict[str, int] = {}
        self.lives = [0] * slots
        """How many lives of actors have taken each slot."""

    def take(self, actor: str, incarnation: str, now: float) -> int:
        """Lease (or renew) a slot for an actor."""
        self.expire(now)
        slot = self._slot_of(actor)
        if not any(held.incarnation == incarnation for held in self._held[slot]):
            self.lives[slot] += 1
        self._held[slot] = [held for held in self._held[slot] if held.actor != actor]
        self._held[slot].append(_Held(actor, incarnation, now + LEASE_SECONDS))
        self._last[actor] = slot
        return slot

    def release(self, actor: str) -> int | None:
        """Give the slot back at once; returns it. The name is remembered."""
        for slot, holders in self._held.items():
            if any(held.actor == actor for held in holders):
                self._held[slot] = [held for held in holders if held.actor != actor]
                return slot
        return None

    def forget(self, actor: str) -> None:
        """Keep no slot for this actor to come back to."""
        self._last.pop(actor, None)

    def expire(self, now: float) -> None:
        """Forget leases that have run out."""
        for slot, holders in self._held.items():
            if holders:
                self._held[slot] = [held for held in holders if held.until > now]

    def restore(self, leases: Iterable[tuple[int, str, str, float]], now: float) -> None:
        """Leases read back after a restart, as (slot, actor, incarnation, remaining seconds)."""
        for slot, actor, incarnation, seconds in leases:
            if 0 <= slot < self.slots:
                self._held[slot].append(_Held(actor, incarnation, now + seconds))
                self._last[actor] = slot
                self.lives[slot] += 1

    def _slot_of(self, actor: str) -> int:
        for slot, holders in self._held.items():
            if any(held.actor == actor for held in holders):
                return slot
        last = self._last.get(actor)
        fewest = min(len(holders) for holders in self._held.values())
        if last is not None and len(self._held[last]) == fewest:
            return last
        # Slots that a known actor may come back for are given to newcomers only when there is no other.
        expected = {slot for name, slot in self._last.items() if name != actor}
        candidates = [slot for slot, holders in self._held.items() if len(holders) == fewest]
        return next((slot for slot in candidates if slot not in expected), candidates[0])

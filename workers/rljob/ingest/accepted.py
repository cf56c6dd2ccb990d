"""What was accepted of an actor: the other half of exactly-once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accepted:
    """What was accepted from the latest incarnation of an actor: up to which sequence number, and how many transitions."""

    incarnation: str
    sequence: int
    transitions: int

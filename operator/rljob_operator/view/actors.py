"""One actor's figures out of the learner's status document. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def by_name(figures: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The actors that the learner knows, by name; whatever is no actor is left out."""
    found = figures.get("actors") or ()
    return {str(a.get("name")): a for a in found if isinstance(a, Mapping)} if isinstance(found, list | tuple) else {}


def blocked_fraction(actor: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> float | None:
    """Share of time that an actor was held back since an earlier look at the same life of it, or in its whole life."""
    now = _stages(actor)
    same_life = before is not None and before.get("incarnation") == actor.get("incarnation")
    then = _stages(before) if before is not None and same_life else {}
    spent = {stage: seconds - then.get(stage, 0.0) for stage, seconds in now.items()}
    whole = sum(spent.values())
    return spent.get("blocked", 0.0) / whole if whole > 0 else None


def stage_seconds(figures: Mapping[str, Any]) -> float:
    """All the time that a role has accounted for; 0 where it says nothing."""
    return sum(_stages(figures).values())


def _stages(actor: Mapping[str, Any]) -> dict[str, float]:
    stages = actor.get("stages")
    if not isinstance(stages, Mapping):
        return {}
    return {str(stage): float(seconds) for stage, seconds in stages.items() if isinstance(seconds, int | float)}

"""What one replay shard has said of itself, as it is added up: totals that never fall, and no figures of a shard that is gone."""

from __future__ import annotations

from typing import Any

_GROWING = ("inserted_total", "sampled_total", "episodes_total")
"""Counted by each shard of its own part: a shard that begins from nothing adds to what was counted before."""
_HIGHEST = ("steps_total", "raw_frames_total")
"""Counted by every shard of the whole run: a shard that begins from nothing counts what is in the older figure again."""
_OF_THE_MOMENT = (
    *("state", "items", "chunks", "capacity", "bytes", "capacity_bytes", "fill", "limiter"),
    *("queue_depth_batches", "queue_bound_batches"),
)
"""True of a shard only while it is there."""


class ShardReport:
    """The latest status document of one shard, over all the services that bear its number. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._document: dict[str, Any] = {}
        self._last: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._heard_at = 0.0

    def heard(self, status: dict[str, Any], now: float) -> None:
        """Take in a status document that ``read_status`` has checked."""
        self._document, self._heard_at = status, now
        if status.get("state") == "warming" and self._totals:
            return  # it has not read yet from where it will go on counting
        for name in _GROWING:
            new = status.get(name) or 0
            self._totals[name] = self._totals.get(name, 0) + max(0, new - self._last.get(name, 0))
            self._last[name] = new
        for name in _HIGHEST:
            self._totals[name] = max(self._totals.get(name, 0), status.get(name) or 0)

    def document(self, now: float, *, gone: bool) -> dict[str, Any]:
        """The document with the totals of all lives; empty before the first. Of one that is ``gone`` there remain its totals, its
        games, and its actors as they were heard of, so much longer ago."""
        if not self._document:
            return {}
        document = self._document | self._totals
        if not gone:
            return document
        for name in _OF_THE_MOMENT:
            document.pop(name, None)
        silent_seconds = now - self._heard_at
        document["actors"] = [
            {**actor, "age_seconds": float(actor.get("age_seconds") or 0.0) + silent_seconds}
            for actor in document.get("actors") or ()
        ]
        return document

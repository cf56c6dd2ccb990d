"""What the replay shards report, added up: pure functions on their status documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

GAMES_IN_MEAN = 20
GAMES_TO_GO_BY = 10
_STATES = ("warming", "filling", "serving")

_NUMBERS = (
    *("items", "capacity", "bytes", "inserted_total", "sampled_total", "episodes_total", "steps_total"),
    *("raw_frames_total", "queue_depth_batches", "queue_bound_batches"),
)
_LARGEST = float(1 << 63)


def read_status(text: bytes) -> dict[str, Any]:
    """A shard's status document, in which everything that is read here is what it should be; whatever is not finite is None.

    Raises ValueError, saying what is wrong, for anything else.
    """
    try:
        status = json.loads(text, parse_constant=lambda word: None)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(status, dict):
        raise ValueError("it is no JSON object")
    for name in _NUMBERS:
        _check_number(status, name)
    _check_numbers(status, "stages")
    for row in _rows(status, "actors"):
        _check_number(row, "age_seconds")
        _check_numbers(row, "stages")
    for row in _rows(status, "episodes"):
        if row.get("return") is None:
            raise ValueError("an episode has no return")
        _check_number(row, "return")
        _check_number(row, "time")
    return status


def _rows(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    rows = document.get(name) or []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{name} is no list of objects")
    return rows


def _check_numbers(document: Mapping[str, Any], name: str) -> None:
    values = document.get(name) or {}
    if not isinstance(values, dict):
        raise ValueError(f"{name} is no object")
    for each in values:
        _check_number(values, each)


def _check_number(document: Mapping[str, Any], name: str) -> None:
    value = document.get(name)
    if value is not None and (type(value) not in (int, float) or not -_LARGEST <= value <= _LARGEST):
        raise ValueError(f"{name} is {str(value)[:40]!r}, which is no number that counts anything")


def least_state(shards: Sequence[Mapping[str, Any]]) -> str:
    """The state that every shard which is there has reached: the least advanced of warming, filling, serving."""
    order = {state: rank for rank, state in enumerate(_STATES)}
    states = (str(shard["state"]) for shard in shards if "state" in shard)
    return min(states, key=lambda s: order.get(s, 0), default="warming")


def total(shards: Iterable[Mapping[str, Any]], name: str) -> float:
    """The sum of a number over the shards that report it."""
    return sum(shard.get(name) or 0 for shard in shards)


def limited(shards: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """As ``total``, but None where no shard reports the number: without a samples-per-insert ratio there is no queue."""
    return total(shards, name) if any(shard.get(name) is not None for shard in shards) else None


def replay_summary(shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The ``replay`` part of the learner's status: sums over shards, durable only where all are."""
    items, capacity = int(total(shards, "items")), int(total(shards, "capacity"))
    summary: dict[str, Any] = {
        "items": items,
        "capacity": capacity,
        "bytes": int(total(shards, "bytes")),
        "fill": items / capacity if capacity else 0.0,
        "durable": bool(shards) and all(bool(shard.get("durable")) for shard in shards),
        "state": least_state(shards),
    }
    durability = {str(shard["durability"]) for shard in shards if "durability" in shard}
    if durability:
        summary["durability"] = "On" if "On" in durability else "Off"
    reasons = [str((shard.get("redis") or {}).get("reason") or "") for shard in shards if shard.get("durable") is False]
    if any(reasons):
        summary["not_durable_because"] = next(filter(None, reasons))
    return summary


def actors(shards: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every actor once, in the order of names; where several shards know it, what the one with the freshest news says."""
    newest: dict[str, dict[str, Any]] = {}
    for shard in shards:
        for actor in shard.get("actors") or ():
            name, age = str(actor.get("name", "")), float(actor.get("age_seconds") or 0.0)
            if name not in newest or age < float(newest[name].get("age_seconds") or 0.0):
                newest[name] = dict(actor)
    return [newest[name] for name in sorted(newest)]


def stage_totals(documents: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The ``stages`` of several processes of one role, in seconds, added up."""
    seconds: dict[str, float] = {}
    for document in documents:
        for stage, value in (document.get("stages") or {}).items():
            seconds[stage] = seconds.get(stage, 0.0) + float(value or 0.0)
    return seconds


def steps_and_raw_frames(shards: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """(agent steps, raw frames) of the whole run. Actors report to every shard, so each counts all of them: no sum."""
    steps = max((int(shard.get("steps_total") or 0) for shard in shards), default=0)
    raw_frames = max((int(shard.get("raw_frames_total") or 0) for shard in shards), default=0)
    return steps, raw_frames


def mean_return(shards: Sequence[Mapping[str, Any]], games: int = GAMES_IN_MEAN) -> tuple[float | None, int]:
    """Mean return of the last ``games`` games of the greedier half of the ladder, and how many there were (None, 0 at first).

    Each finished game is reported to one shard. Which one, changes when a shard goes or comes back, so the newest are told by the
    time at which their shard heard of them.
    """
    finished = [episode for shard in shards for episode in shard.get("episodes") or () if episode.get("greedy_half")]
    finished.sort(key=lambda episode: float(episode.get("time") or 0.0))
    newest = [float(episode["return"]) for episode in finished[-games:]]
    return (sum(newest) / len(newest), len(newest)) if newest else (None, 0)


def return_to_go_by(shards: Sequence[Mapping[str, Any]]) -> float | None:
    """``mean_return`` once it is of ``GAMES_TO_GO_BY`` games, None before: the first games to end after a start are the
    shortest ones, which says something about their score."""
    mean, games = mean_return(shards)
    return mean if games >= GAMES_TO_GO_BY else None

"""What the records of a whole run come to: the mean of each figure, and of the share of each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rljob.telemetry.figures import number

Points = Sequence[Mapping[str, Any]]

GAMES_TO_GO_BY: Final = 10
"""The first games to end after a start are the shortest ones: a mean of fewer says little about the score."""


def with_returns_to_go_by(points: Points) -> Points:
    """The records, without those training returns that are of too few games; as they are where no record has enough."""

    def enough(point: Mapping[str, Any]) -> bool:
        games = number(point.get("games"))
        return number(point.get("mean_return")) is not None and (games is None or games >= GAMES_TO_GO_BY)

    if not any(map(enough, points)):
        return points
    return [point if enough(point) else {**point, "mean_return": None} for point in points]


def mean_figures(points: Points) -> dict[str, float]:
    """The mean of each figure over the records that have it, each weighted with the time since the record before."""
    totals: dict[str, tuple[float, float]] = {}
    before = 0.0
    for point in points:
        elapsed = number(point.get("elapsed_seconds")) or 0.0
        weight, before = max(elapsed - before, 1e-3), elapsed
        for name, value in numbers(point).items():
            whole, weights = totals.get(name, (0.0, 0.0))
            totals[name] = whole + weight * value, weights + weight
    return {name: whole / weights for name, (whole, weights) in totals.items()}


def mean_stages(points: Points) -> dict[str, dict[str, float]]:
    """``{role: {stage: share}}`` over the run, from the learner outwards."""
    shares: dict[str, dict[str, float]] = {}
    for name, share in mean_figures(points).items():
        prefix, _, rest = name.partition("/")
        role, _, stage = rest.partition("/")
        if prefix == "stage" and stage:
            shares.setdefault(role, {})[stage] = share
    order = {"learner": 0, "gpu": 1, "replay": 2, "actor": 3}
    return dict(sorted(shares.items(), key=lambda item: (order.get(item[0], 9), item[0])))


def numbers(point: Mapping[str, Any]) -> dict[str, float]:
    """Those figures of a record that are finite numbers."""
    return {name: value for name, raw in point.items() if (value := number(raw)) is not None}

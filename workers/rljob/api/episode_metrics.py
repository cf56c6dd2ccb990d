"""What environments report of episodes beside returns: numbers by name, such as ``is_success``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Final

MOST_NAMES: Final = 16
"""One environment may have so many: each is a chart and a series of its own."""
NAME_PATTERN: Final = r"^[ -^`-~][ -~]{0,63}$"
"""Printable ASCII. A name that begins with ``_`` is a mask in the infos of Gymnasium's vectors."""


def means(episodes: Iterable[Mapping[str, float]], most: int | None = None) -> dict[str, float]:
    """The mean of each number over the episodes that have it, or over the first ``most`` of them; where there are more than 16
    names, of the first in their order. For numbers that are 0 or 1 it is the share of episodes with 1."""
    values: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for name, value in episode.items():
            values[name].append(value)
    return {name: fmean(values[name][:most]) for name in sorted(values)[:MOST_NAMES]}

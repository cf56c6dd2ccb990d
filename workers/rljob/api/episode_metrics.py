"""What environments report of episodes beside returns: numbers by name, such as ``is_success``."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

MOST_NAMES: Final = 16
"""One environment may have so many: each is a chart and a series of its own."""
LARGEST: Final = 1e15
"""The largest size of a reward, and of a number that an environment reports: sums over thousands of them are figures, too."""
NAME_PATTERN: Final = r"^[ -^`-~][ -~]{0,63}$"
"""Printable ASCII. A name that begins with ``_`` is a mask in the infos of Gymnasium's vectors."""


def means(episodes: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], dict[str, int]]:
    """The mean of each number over the episodes that have it, which is a share of them where it is 0 or 1; and how many these
    are, of each number that not all have."""
    values: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for name, value in episode.items():
            values[name].append(value)
    counts = {name: len(of) for name, of in values.items() if len(of) < len(episodes)}
    return {name: fmean(of) for name, of in values.items()}, counts


def in_words(means: Mapping[str, float], counts: Mapping[str, float], games: int, prefix: str = "") -> dict[str, str]:
    """The ``means`` for people, by their names behind ``prefix``: ``1 (in 3 of 100 games)`` where not all games have it."""
    some = {name: f" (in {count:g} of {games} games)" for name, count in counts.items()}
    return {f"{prefix}{name}": f"{mean:.3g}{some.get(name, '')}" for name, mean in means.items()}

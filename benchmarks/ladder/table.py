"""What a ladder's rounds come to: what each rung gains over the one below and over the first, beside what was published."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.ladder.rungs import Rung

Rounds = Mapping[str, Sequence[Mapping[str, float]]]
"""By the name of a rung, one ``SpeedWindow.result`` a round; all of equal length."""
PEER = "sb3"
PEER_TOLD = "Stable-Baselines3's DQN on the first rung's terms"


@dataclass(frozen=True, slots=True)
class Row:
    """Medians over the rounds; a ratio is the median of the rounds' ratios. ``over_below`` and ``over_first``: of frames/s;
    ``cpu_over_first``: of frames per processor second, which other programs on the machine disturb least. None where there is
    nothing to compare with."""

    name: str
    told: str
    frames_per_second: float
    over_below: float | None
    over_first: float
    cpu_over_first: float
    samples_per_frame: float
    cores: float
    published_frames_per_second: float | None = None
    published_minutes: float | None = None
    published_over_below: float | None = None
    published_over_first: float | None = None
    below: str | None = None
    """The name of the rung that ``over_below`` compares with."""


def rows_of(rungs: Sequence[Rung], rounds: Rounds) -> list[Row]:
    """A row for each rung that was measured, in their order, and one for the peer where it was."""
    first, below, rows = rungs[0], None, []
    for rung in rungs:
        published, before = rung.published, None if below is None else below.published
        rows.append(
            Row(
                rung.name,
                rung.told,
                **_measured(rounds, rung.name, first.name, None if below is None else below.name),
                published_frames_per_second=published[0] if published else None,
                published_minutes=published[1] if published else None,
                published_over_below=published[0] / before[0] if published and before else None,
                published_over_first=published[0] / first.published[0] if published and first.published else None,
                below=None if below is None else below.name,
            )
        )
        below = below if rung.is_control else rung
    if PEER in rounds:
        rows.append(Row(PEER, PEER_TOLD, **_measured(rounds, PEER, first.name, None)))
    return rows


def _measured(rounds: Rounds, name: str, first: str, below: str | None) -> dict[str, float | None]:
    mine = rounds[name]

    def median(value: Callable[[Mapping[str, float]], float]) -> float:
        return statistics.median(map(value, mine))

    def over(other: str, figure: str) -> float:
        return statistics.median(a[figure] / b[figure] for a, b in zip(mine, rounds[other], strict=True))

    return {
        "frames_per_second": median(lambda each: each["frames_per_second"]),
        "over_below": None if below is None else over(below, "frames_per_second"),
        "over_first": over(first, "frames_per_second"),
        "cpu_over_first": over(first, "frames_per_cpu_second"),
        "samples_per_frame": median(lambda each: each["samples_per_frame"]),
        "cores": median(lambda each: each["cores"]),
    }


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table; each ratio stands beside the published one."""
    lines = [
        "| rung | frames/s: published | here | over the one below: published | here | over the first: published | here "
        "| per processor second | samples a frame | cores | minutes to solved, published |",
        "|---|" + "---|" * 10,
    ]
    for row in rows:
        cells = [
            row.told,
            _number(row.published_frames_per_second, "{:.0f}"),
            f"{row.frames_per_second:.0f}",
            _number(row.published_over_below),
            _number(row.over_below),
            _number(row.published_over_first),
            f"**{row.over_first:.2f}x**",
            f"{row.cpu_over_first:.2f}x",
            f"{row.samples_per_frame:.1f}",
            f"{row.cores:.2f}",
            _number(row.published_minutes, "{:.0f}"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _number(value: float | None, form: str = "{:.2f}x") -> str:
    return "" if value is None else form.format(value)

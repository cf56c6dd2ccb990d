"""What a ladder's rounds come to: what each rung gains over the one below and over the first, beside what was published."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
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
    published_frames_per_second: float | None
    published_minutes: float | None
    published_over_below: float | None
    published_over_first: float | None
    below: str | None
    """The name of the rung that ``over_below`` compares with."""


def rows_of(rungs: Sequence[Rung], rounds: Rounds) -> list[Row]:
    """A row for each rung that was measured, in their order, and one for the peer where it was."""
    first = rungs[0]
    rows: list[Row] = []
    below: Rung | None = None
    for rung in rungs:
        rows.append(_row(rung, first, below, rounds))
        below = below if rung.is_control else rung
    if PEER in rounds:
        rows.append(_row(Rung(PEER, PEER_TOLD, None), first, None, rounds))
    return rows


def _row(rung: Rung, first: Rung, below: Rung | None, rounds: Rounds) -> Row:
    def median(figure: str) -> float:
        return statistics.median(each[figure] for each in rounds[rung.name])

    def over(other: Rung, figure: str) -> float:
        pairs = zip(rounds[rung.name], rounds[other.name], strict=True)
        return statistics.median(mine[figure] / its[figure] for mine, its in pairs)

    def published_over(other: Rung | None) -> float | None:
        return rung.published[0] / other.published[0] if rung.published and other and other.published else None

    speed, minutes = rung.published or (None, None)
    return Row(
        name=rung.name,
        told=rung.told,
        frames_per_second=median("frames_per_second"),
        over_below=None if below is None else over(below, "frames_per_second"),
        over_first=over(first, "frames_per_second"),
        cpu_over_first=over(first, "frames_per_cpu_second"),
        samples_per_frame=median("samples_per_frame"),
        cores=median("cores"),
        published_frames_per_second=speed,
        published_minutes=minutes,
        published_over_below=published_over(below),
        published_over_first=published_over(first),
        below=None if below is None else below.name,
    )


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

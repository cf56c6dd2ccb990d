"""The picture of `docs/autoscaling.md`: actors and waiting over time, one row a law, as a self-contained SVG."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

from rljob.telemetry.charts import HEIGHT, WIDTH, Series, line_chart

from benchmarks.autoscaling.plant import Trace

_STYLE = """
text { font: 11px system-ui, sans-serif; fill: #444; } .title { font-size: 14px; font-weight: 600; fill: #222; }
.grid { stroke: #e4e4e4; } .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .dashed { stroke-dasharray: 6 4; }
.s0 { stroke: #1f6fb4; } .s1 { stroke: #d1495b; } .s2 { stroke: #777; } .s3 { stroke: #e0902f; }
"""
_COLOURS = ("#1f6fb4", "#d1495b", "#777", "#e0902f")
_TITLE, _FOOT = 26, 30


def draw(path: Path, traces: Mapping[str, tuple[str, Trace]]) -> None:
    """Write the picture. Left: actors wanted and needed; right: shares of time, means over a minute."""
    rows = len(traces)
    height = rows * (HEIGHT + _TITLE) + _FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {height}" width="{2 * WIDTH}" height="{height}">',
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>',
    ]
    for row, (title, trace) in enumerate(traces.values()):
        top = row * (HEIGHT + _TITLE)
        parts.append(f'<text class="title" x="56" y="{top + 18}">{escape(title)}</text>')
        for column, svg in enumerate((_actors(trace), _shares(trace))):
            place = f'x="{column * WIDTH}" y="{top + _TITLE}" width="{WIDTH}" height="{HEIGHT}" '
            parts.append(re.sub("^<svg ", f"<svg {place}", svg))
    names = (("actors wanted", 0), ("actors needed", 2), ("learner waits", 1), ("actors blocked", 3))
    for position, (name, colour) in enumerate(names):
        x = 56 + position * 160
        parts.append(f'<rect x="{x}" y="{height - 20}" width="18" height="4" fill="{_COLOURS[colour]}"/>')
        parts.append(f'<text x="{x + 24}" y="{height - 14}">{name}</text>')
    path.write_text("".join(parts) + "</svg>\n")


def _actors(trace: Trace) -> str:
    minutes = [second / 60 for second in range(len(trace.desired))]
    series = [
        Series("actors wanted", list(zip(minutes, map(float, trace.desired), strict=True))),
        Series("actors needed", list(zip(minutes, trace.needed, strict=True)), colour=2, dashed=True),
    ]
    return str(line_chart("Actors", series, x_label="minutes", y_label="actors", from_zero=True).svg)


def _shares(trace: Trace) -> str:
    series = [
        Series("learner waits", _by_minute(trace.starved), colour=1),
        Series("actors blocked", _by_minute(trace.blocked), colour=3),
    ]
    return str(line_chart("Shares of time", series, x_label="minutes", y_label="% of time", from_zero=True).svg)


def _by_minute(seconds: list[float]) -> list[tuple[float, float]]:
    return [(start / 60, 100 * sum(seconds[start : start + 60]) / 60) for start in range(0, len(seconds) - 59, 60)]

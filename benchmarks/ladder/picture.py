"""The ladder's picture: for each rung how many times the first one's frames/s it makes, published and here, as an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rljob.telemetry.charts import compact, nice_ticks

from benchmarks.ladder.table import Row

_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #444; } .title { font-size: 14px; font-weight: 600; fill: #222; }
.grid { stroke: #e4e4e4; } .here { fill: #1f6fb4; } .published { fill: #b9c4cf; }
"""
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _BAR, _FOOT = 900, 330, 70, 44, 52, 17, 46


def draw(path: Path, rows: Sequence[Row], note: str) -> None:
    """Write the picture; ``note`` stands below it: what was measured where."""
    height = _TOP + _ROW * len(rows) + _FOOT
    ticks = nice_ticks(0.0, max(max(row.over_first, row.published_over_first or 0.0) for row in rows), 7)
    scale = (_WIDTH - _LEFT - _RIGHT) / ticks[-1]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}">',
        f'<title>{escape(_spoken(rows))}</title><style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>',
        '<text class="title" x="16" y="24">Frames/s over the first rung\'s: DQN on Pong</text>',
        f'<rect class="published" x="{_LEFT + 90}" y="14" width="14" height="11"/>',
        f'<text x="{_LEFT + 110}" y="24">published, 84x84, a GPU</text>',
        f'<rect class="here" x="{_LEFT + 290}" y="14" width="14" height="11"/>',
        f'<text x="{_LEFT + 310}" y="24">here, 42x42, two cores</text>',
    ]
    bottom = height - _FOOT
    for tick in ticks:
        x = _LEFT + tick * scale
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{bottom}"/>')
        parts.append(f'<text text-anchor="middle" x="{x:.1f}" y="{bottom + 16}">{compact(tick)}</text>')
    for number, row in enumerate(rows):
        top = _TOP + number * _ROW
        told = escape(row.told.replace("`", ""))
        parts.append(f'<text text-anchor="end" x="{_LEFT - 12}" y="{top + _BAR + 5}">{told}</text>')
        for y, kind, value in ((top, "published", row.published_over_first), (top + _BAR + 2, "here", row.over_first)):
            if value is not None:
                width = value * scale
                parts.append(f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2"/>')
                parts.append(f'<text x="{_LEFT + width + 6:.1f}" y="{y + 13}">{value:.2f}x</text>')
    parts.append(f'<text x="16" y="{height - 10}">{escape(note)}</text>')
    path.write_text("".join(parts) + "</svg>\n")


def _spoken(rows: Sequence[Row]) -> str:
    """The picture's figures for a screen reader."""
    return "; ".join(
        f"{row.told}: {row.over_first:.2f}"
        + ("" if row.published_over_first is None else f", published {row.published_over_first:.2f}")
        for row in rows
    )

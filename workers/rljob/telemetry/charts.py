"""Line charts and stacked bars as inline SVG: no script, no font, no network, colours from the page's style sheet.

Text and colour come from CSS classes, so one drawing serves a light and a dark page. Everything that a run's files can
put into a chart (names, units) is escaped here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Final

from markupsafe import Markup

WIDTH: Final = 640
HEIGHT: Final = 260
SMALL: Final = 360, 180
"""Width and height of a drawing that stands three in a row, so that its text is as large as that of the others."""
WIDE: Final = 1060
"""Width of a drawing that takes the whole page; the others stand two in a row."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 40
_MAX_POINTS = 400
COLOURS: Final = 8
"""The style sheet defines ``--c0`` to ``--c7``."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line (or set of points) of a chart.

    Attributes:
        name: for the legend.
        points: (x, y) in order of x; points that are not finite break the line.
        colour: 0..7, an entry of the style sheet's palette.
        marks: draw points instead of a line. errors: half-heights of their error bars, one a point.
        dashed: draw a dashed line (bounds, targets).
        around: lower and upper end of a band that is shaded around the line, one pair a point; all are finite then.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    marks: bool = False
    dashed: bool = False
    errors: Sequence[float] = field(default=())
    around: Sequence[tuple[float, float]] = field(default=())


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing, with its main figures as text for a screen reader; empty ``svg`` = nothing to draw. The legend is empty where
    the title suffices."""

    title: str
    svg: Markup
    legend: tuple[tuple[str, int, str], ...] = ()  # (name, colour, "line" | "dash" | "mark" | "band")


@dataclass(frozen=True, slots=True)
class Bands:
    """Spans of the x axis that are shaded behind the lines, ``(from, to)`` each, such as the times of evaluations."""

    name: str
    spans: Sequence[tuple[float, float]]
    colour: int = 7


NO_BANDS: Final = Bands("", ())


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    from_zero: bool = False,
    whole: bool = False,
    bands: Bands = NO_BANDS,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> Chart:
    """Lines over a common x axis.

    Args:
        title: what the chart shows; also the start of its alternative text.
        x_label, y_label: names with units.
        from_zero: let the y axis reach 0 (rates, counts), so that small changes do not look large.
        whole: label whole numbers only (counts of things).
        bands: shaded as far as they lie within the lines' reach.
        size: width and height of the drawing.
    """
    width, height = size
    drawn = [one for one in series if any(_is_finite(point) for point in one.points)]
    if not drawn:
        return Chart(title, Markup(""))
    xs = [x for one in drawn for x, y in one.points if _is_finite((x, y))]
    ys = [value for one in drawn for value in _extent(one)]
    x_ticks = nice_ticks(min(xs), max(xs), width // 90)
    y_ticks = nice_ticks(min(0.0, *ys) if from_zero else min(ys), max(0.0, *ys) if from_zero else max(ys), height // 43)
    labelled = [tick for tick in y_ticks if not whole or tick == round(tick)]
    x_low, x_high = min(xs), max(max(xs), min(xs) + 1e-9)
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low)
        up = (y - y_low) / (y_high - y_low)
        return _LEFT + across * (width - _LEFT - _RIGHT), height - _BOTTOM - up * (height - _TOP - _BOTTOM)

    parts = [_opening(title, _summary(drawn, y_label), width, height)]
    shaded = _within(bands.spans, x_low, x_high)
    for start, end in shaded:
        (left, _), (right, _) = at(start, y_low), at(end, y_low)
        parts.append(
            f'<rect class="band f{bands.colour}" x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" '
            f'height="{height - _TOP - _BOTTOM}"/>'
        )
    for tick in labelled:
        _, y = at(x_low, tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" text-anchor="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{compact(tick)}</text>')
    for tick in x_ticks:
        if x_low <= tick <= x_high:
            x, _ = at(tick, y_low)
            parts.append(
                f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{height - _BOTTOM + 17}">{compact(tick)}</text>'
            )
    middle = (height - _BOTTOM + _TOP) / 2
    parts.append(
        f'<text class="axis" text-anchor="middle" x="{(_LEFT + width - _RIGHT) / 2}" y="{height - 5}">'
        f"{escape(x_label)}</text>"
        f'<text class="axis" text-anchor="middle" transform="translate(10 {middle}) rotate(-90)">'
        f"{escape(y_label)}</text>"
    )
    parts += [_around(one, at) for one in drawn if one.around]
    parts += [_marks(one, at) if one.marks else _line(one, at) for one in drawn]
    parts.append("</svg>")
    kinds = tuple((one.name, one.colour, "mark" if one.marks else "dash" if one.dashed else "line") for one in drawn)
    kinds += ((bands.name, bands.colour, "band"),) if shaded else ()
    # A single line needs a legend, too, where the others have no points.
    return Chart(title, Markup("".join(parts)), kinds if len(series) > 1 or shaded else ())


def stacked_bars(title: str, rows: Mapping[str, Mapping[str, float]]) -> Chart:
    """One horizontal bar a row, its parts in proportion: ``{"learner": {"wait": 0.6, "update": 0.4}}``, shares 0..1."""
    rows = {name: parts for name, parts in rows.items() if sum(parts.values()) > 0}
    if not rows:
        return Chart(title, Markup(""))
    left, bar, gap = 84, 30, 14
    height = len(rows) * (bar + gap) + 26
    spoken = "; ".join(
        f"{name}: "
        + ", ".join(f"{part} {share:.0%}" for part, share in sorted(parts.items(), key=lambda item: -item[1]))
        for name, parts in rows.items()
    )
    out = [_opening(title, spoken, WIDE, height)]
    width = WIDE - left - 24
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + tick * width
        out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{height - 22}"/>')
        out.append(f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{height - 6}">{tick:.0%}</text>')
    for row, (name, parts) in enumerate(rows.items()):
        y = 8 + row * (bar + gap)
        out.append(f'<text class="row" text-anchor="end" x="{left - 10}" y="{y + bar / 2 + 4}">{escape(name)}</text>')
        whole, x = sum(parts.values()), float(left)
        for position, (part, value) in enumerate(parts.items()):
            span = value / whole * width
            if span <= 0:
                continue
            out.append(
                f'<rect class="f{position % COLOURS}" x="{x:.1f}" y="{y}" width="{max(0.5, span - 1):.1f}" '
                f'height="{bar}" rx="2"><title>{escape(name)}: {escape(part)} {value / whole:.1%}</title></rect>'
            )
            text = f"{part} {value / whole:.0%}"
            if span > 7 * len(text):
                out.append(f'<text class="inside" x="{x + 7:.1f}" y="{y + bar / 2 + 4}">{escape(text)}</text>')
            x += span
    out.append("</svg>")
    return Chart(title, Markup("".join(out)))


def nice_ticks(low: float, high: float, wanted: int) -> list[float]:
    """About ``wanted`` round numbers whose first is <= low and whose last is >= high; at least two."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"an axis needs finite ends, not {low} and {high}")
    if high - low <= 1e-12 * max(1.0, abs(low), abs(high)):
        pad = max(1.0, abs(low) * 0.1)
        low, high = (0.0, pad) if low == 0 else (low - pad, high + pad)
    rough = (high - low) / max(1, wanted - 1)
    base = 10.0 ** math.floor(math.log10(rough))
    step = next(base * factor for factor in (1, 2, 2.5, 5, 10) if base * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, max(last, first + 1) + 1)]


def compact(value: float) -> str:
    """A number for an axis or a tile: 1250000 -> ``1.25 M``, 0.034 -> ``0.034``, 0.00025 -> ``2.5e-4``."""
    size = abs(value)
    if (
        0 < size < 1e-3 or size >= 1e12
    ):  # a learning rate, or a loss that has diverged: its zeros would not fit beside an axis
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    for limit, suffix in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if size >= limit:
            scaled = value / (1e3 if limit == 1e4 else limit)
            return f"{scaled:.4g}{suffix}" if abs(scaled) < 1000 else f"{scaled:,.0f}{suffix}"
    if size >= 1000:
        return f"{value:,.0f}"
    return "0" if value == 0 else f"{value:.3g}"


def _within(spans: Sequence[tuple[float, float]], low: float, high: float) -> list[tuple[float, float]]:
    """The parts of ``spans`` between ``low`` and ``high`` that have a width."""
    cut = [(max(low, start), min(high, end)) for start, end in spans if _is_finite((start, end))]
    return [(start, end) for start, end in cut if end > start]


def _is_finite(point: tuple[float, float]) -> bool:
    return math.isfinite(point[0]) and math.isfinite(point[1])


def _extent(one: Series) -> list[float]:
    """All heights that a series needs on the y axis, error bars included."""
    heights = []
    for index, (x, y) in enumerate(one.points):
        if _is_finite((x, y)):
            error = one.errors[index] if index < len(one.errors) and math.isfinite(one.errors[index]) else 0.0
            heights += [y - error, y + error, *(one.around[index] if one.around else ())]
    return heights


def _opening(title: str, alt: str, width: int, height: int) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(f"{title}. {alt}", quote=True)}" xmlns="http://www.w3.org/2000/svg">'
    )


def _summary(series: Sequence[Series], unit: str) -> str:
    told = []
    for one in series:
        heights = [y for x, y in one.points if _is_finite((x, y))]
        told.append(
            f"{one.name}: from {compact(heights[0])} to {compact(heights[-1])} "
            f"(lowest {compact(min(heights))}, highest {compact(max(heights))}) {unit}"
        )
    return "; ".join(told)


def _line(one: Series, at: object) -> str:
    assert callable(at)
    pieces: list[list[str]] = [[]]
    for point in thinned(one.points):
        if _is_finite(point):
            x, y = at(*point)
            pieces[-1].append(f"{x:.1f} {y:.1f}")
        elif pieces[-1]:
            pieces.append([])
    # A point alone between two gaps is a line without a length, which the round end of a line makes a dot.
    path = [f"M{'L'.join(piece)}{'h0' if len(piece) == 1 else ''}" for piece in pieces if piece]
    if len(path) == len(pieces[0]) == 1:
        x, y = at(*next(point for point in one.points if _is_finite(point)))
        return f'<circle class="f{one.colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    dash = " dashed" if one.dashed else ""
    return f'<path class="line s{one.colour}{dash}" d="{"".join(path)}"/>'


def _around(one: Series, at: object) -> str:
    """The band around a line: along its upper ends, and back along its lower ones."""
    assert callable(at)
    xs = [x for x, _ in one.points]
    corners = [(x, high) for x, (_, high) in zip(xs, one.around, strict=True)]
    corners += [(x, low) for x, (low, _) in zip(reversed(xs), reversed(one.around), strict=True)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in (at(*corner) for corner in corners))
    return f'<path class="band f{one.colour}" d="M{path}Z"/>'


def _marks(one: Series, at: object) -> str:
    assert callable(at)
    out = []
    for index, point in enumerate(one.points):
        if not _is_finite(point):
            continue
        x, y = at(*point)
        error = one.errors[index] if index < len(one.errors) else 0.0
        if math.isfinite(error) and error > 0:
            _, top = at(point[0], point[1] + error)
            _, bottom = at(point[0], point[1] - error)
            out.append(
                f'<path class="error s{one.colour}" d="M{x:.1f} {top:.1f}V{bottom:.1f}'
                f'M{x - 4:.1f} {top:.1f}h8M{x - 4:.1f} {bottom:.1f}h8"/>'
            )
        spoken = f"{one.name}: {compact(point[1])}" + (f" ± {compact(error)}" if error else "")
        out.append(
            f'<circle class="mark f{one.colour}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
            f"<title>{escape(spoken)}</title></circle>"
        )
    return "".join(out)


def thinned(points: Sequence[tuple[float, float]], limit: int = _MAX_POINTS) -> list[tuple[float, float]]:
    """At most ``limit`` points that keep every visible peak and dip, the lowest and highest of each slice, and where there are
    any that are not finite, the first such of each slice, so that the line still has its gaps."""
    if len(points) <= limit:
        return list(points)
    kept = []
    edges = [round(index * len(points) / (limit // 2)) for index in range(limit // 2 + 1)]
    for start, end in pairwise(edges):
        piece = [index for index in range(start, end) if _is_finite(points[index])]
        gap = [index for index in range(start, end) if not _is_finite(points[index])][:1]
        if piece:
            low = min(piece, key=lambda index: points[index][1])
            high = max(piece, key=lambda index: points[index][1])
            kept += [points[index] for index in sorted({low, high, *gap})]
        else:
            kept += [points[index] for index in gap]
    return kept

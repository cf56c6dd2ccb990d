"""Line charts and stacked bars as inline SVG: no script, no font, no network, colours from the page's style sheet.

The markup is a template's, ``chart.svg.jinja``; here is what is drawn where.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

WIDTH: Final = 640
HEIGHT: Final = 260
SMALL: Final = 360, 180
"""Width and height of a drawing that stands three in a row, so that its text is as large as that of the others."""
WIDE: Final = 1060
"""Width of a drawing that takes the whole page; the others stand two in a row."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 40
_LEFT_OF_BARS = 84
_MAX_POINTS = 400
COLOURS: Final = 8
"""The style sheet defines ``--c0`` to ``--c7``."""
_At = Callable[[float, float], tuple[float, float]]
"""From values to a place in a drawing."""


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


def page_environment(*packages: str) -> Environment:
    """Templates of ``packages`` and, for what all pages share, of this one."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "rljob.telemetry")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


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
    drawn = [one for one in series if any(map(_is_finite, one.points))]
    if not drawn:
        return Chart(title, Markup(""))
    xs = [x for one in drawn for x, y in one.points if _is_finite((x, y))]
    ys = [value for one in drawn for value in _extent(one)] + ([0.0] if from_zero else [])
    y_ticks = nice_ticks(min(ys), max(ys), size[1] // 43)
    x_low, x_high = min(xs), max(max(xs), min(xs) + 1e-9)
    right, bottom = size[0] - _RIGHT, size[1] - _BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = (x - x_low) / (x_high - x_low), (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return round(_LEFT + across * (right - _LEFT), 1), round(bottom - up * (bottom - _TOP), 1)

    shaded = [(at(start, 0.0)[0], at(end, 0.0)[0]) for start, end in _within(bands.spans, x_low, x_high)]
    svg = _drawn(
        title=title,
        spoken=_summary(drawn, y_label),
        **{"left": _LEFT, "right": right, "margin": _RIGHT, "top": _TOP, "bottom": bottom, "below": _BOTTOM},
        x_label=x_label,
        y_label=y_label,
        bands=[(start, round(end - start, 1)) for start, end in shaded],
        band_colour=bands.colour,
        y_ticks=[(at(x_low, tick)[1], compact(tick)) for tick in y_ticks if not whole or tick == round(tick)],
        x_ticks=[
            (at(x, 0.0)[0], compact(x)) for x in nice_ticks(x_low, max(xs), size[0] // 90) if x_low <= x <= x_high
        ],
        around=[(one.colour, _around(one, at)) for one in drawn if one.around],
        paths=[(one.colour, one.dashed, *_line(one, at)) for one in drawn if not one.marks],
        marks=[mark for one in drawn if one.marks for mark in _marks(one, at)],
    )
    kinds = tuple((one.name, one.colour, "mark" if one.marks else "dash" if one.dashed else "line") for one in drawn)
    kinds += ((bands.name, bands.colour, "band"),) if shaded else ()
    # A single line needs a legend, too, where the others have no points.
    return Chart(title, svg, kinds if len(series) > 1 or shaded else ())


def stacked_bars(title: str, rows: Mapping[str, Mapping[str, float]]) -> Chart:
    """One horizontal bar a row, its parts in proportion: ``{"learner": {"wait": 0.6, "update": 0.4}}``, shares 0..1."""
    rows = {name: parts for name, parts in rows.items() if sum(parts.values()) > 0}
    if not rows:
        return Chart(title, Markup(""))
    bars, spoken = [], []
    for name, parts in rows.items():
        longest = sorted(parts.items(), key=lambda part: -part[1])
        spoken.append(f"{name}: " + ", ".join(f"{part} {share:.0%}" for part, share in longest))
        shares = [value / sum(parts.values()) for value in parts.values()]
        colours = (position % COLOURS for position in range(len(parts)))
        whole = zip(parts, colours, shares, accumulate(shares, initial=0.0), strict=False)
        bars.append((name, [part for part in whole if part[2] > 0]))
    across = WIDE - _LEFT_OF_BARS - 24
    return Chart(title, _drawn(title=title, spoken="; ".join(spoken), left=_LEFT_OF_BARS, across=across, rows=bars))


@cache
def _template() -> Any:
    return page_environment().get_template("chart.svg.jinja")


def _drawn(**values: Any) -> Markup:
    return Markup(_template().render(values).strip())


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


def _error(one: Series, index: int) -> float:
    """Half the height of a point's error bar; 0 where it has none."""
    return one.errors[index] if index < len(one.errors) and math.isfinite(one.errors[index]) else 0.0


def _extent(one: Series) -> list[float]:
    """All heights that a series needs on the y axis, error bars included."""
    heights: list[float] = []
    for index, (x, y) in enumerate(one.points):
        if _is_finite((x, y)):
            error = _error(one, index)
            heights += [y - error, y + error, *(one.around[index] if one.around else ())]
    return heights


def _summary(series: Sequence[Series], unit: str) -> str:
    told = []
    for one in series:
        heights = [y for x, y in one.points if _is_finite((x, y))]
        told.append(
            f"{one.name}: from {compact(heights[0])} to {compact(heights[-1])} "
            f"(lowest {compact(min(heights))}, highest {compact(max(heights))}) {unit}"
        )
    return "; ".join(told)


def _line(one: Series, at: _At) -> tuple[str, tuple[float, float] | None]:
    """Its path, and its only point where it has no other."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for point in thinned(one.points):
        if _is_finite(point):
            pieces[-1].append(at(*point))
        elif pieces[-1]:
            pieces.append([])
    whole = [piece for piece in pieces if piece]
    # A point alone between two gaps is a line without a length, which the round end of a line makes a dot.
    path = "".join(f"M{_corners(piece)}{'h0' if len(piece) == 1 else ''}" for piece in whole)
    return path, whole[0][0] if len(whole) == len(whole[0]) == 1 else None


def _around(one: Series, at: _At) -> str:
    """The path of the band around a line: along its upper ends, and back along its lower ones."""
    ends = [(x, low, high) for (x, _), (low, high) in zip(one.points, one.around, strict=True)]
    return f"M{_corners([*(at(x, high) for x, _, high in ends), *(at(x, low) for x, low, _ in reversed(ends))])}Z"


def _corners(places: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x} {y}" for x, y in places)


def _marks(one: Series, at: _At) -> list[tuple[Any, ...]]:
    """Colour, place, ends of the error bar and words of each point."""
    found: list[tuple[Any, ...]] = []
    for index, (x, y) in enumerate(one.points):
        if _is_finite((x, y)):
            error = _error(one, index)
            reach = (at(x, y + error)[1], at(x, y - error)[1]) if error > 0 else None
            said = f"{one.name}: {compact(y)}" + (f" ± {compact(error)}" if error else "")
            found.append((one.colour, *at(x, y), reach, said))
    return found


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

"""A comparison as one page without other files, in the style of a run's report. The same runs give the same bytes.

The drawings of a comparison: training return over frames and time, runs solved over time, the profile of verdicts.
"""

import textwrap
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from jinja2 import Environment

from rljob.comparison.comparison import Comparison
from rljob.comparison.estimates import CONFIDENCE_PERCENT, RESAMPLES, Band, Floats, iqm_band, share_band
from rljob.comparison.group import Group
from rljob.comparison.judged_run import JudgedRun
from rljob.comparison.words import estimate_in_words, median_in_words, percent_in_words
from rljob.telemetry.charts import COLOURS, Chart, Series, compact, line_chart
from rljob.telemetry.flat_figures import number
from rljob.telemetry.report import duration, page_environment
from rljob.telemetry.run_charts import time_unit

MOST_DRAWN: Final = 7
"""Groups that are drawn, each in a colour of its own; they are those with the highest interquartile means."""
_POINTS: Final = 200
_LEGEND_CHARACTERS: Final = 60


class Curve(NamedTuple):
    """A line with the band around it over ``x``, f64[points]."""

    x: Floats
    band: Band


def comparison_charts(comparison: Comparison) -> list[Chart]:
    """The drawings; those without anything to draw are left out."""
    groups = comparison.groups[:MOST_DRAWN]
    longest = max((_last(run, "elapsed_seconds") for group in groups for run in group.runs), default=0.0)
    unit, scale = time_unit(longest)
    scores = [score for group in groups for score in group.scores]
    times, levels = np.linspace(0.0, longest, _POINTS), np.linspace(min(scores), max(scores), _POINTS)

    def solved(group: Group) -> Curve | None:
        seconds = [each.seconds for each in group.to_target]
        return Curve(times / scale, share_band(seconds, times)) if seconds else None

    def profile(group: Group) -> Curve | None:
        # A verdict is at least at a level where its negative is at most there.
        return Curve(levels, share_band(-np.array(group.scores), -levels)) if group.scores else None

    frames, time = "raw frames", f"wall time ({unit})"
    curve = "Training return over {}, interquartile mean of the runs"
    charts = [
        _chart(curve.format(frames), groups, lambda group: _returns(group, "raw_frames", 1.0), frames, "return a game"),
        _chart(curve.format("wall time"), groups, lambda group: _returns(group, "elapsed_seconds", scale), time, "return a game"),
        _chart("Runs that have reached the target", groups, solved, time, "share of runs", from_zero=True),
        _chart("Runs with a verdict of at least", groups, profile, "return a game", "share of runs", from_zero=True),
    ]  # fmt: skip
    return [chart for chart in charts if chart.svg]


def _returns(group: Group, key: str, scale: float) -> Curve | None:
    """Over ``key``, from where every run of the group has a return to where its longest run ends; a run that has ended before
    keeps its last return. Runs without one are left out."""
    runs = [run for run in group.runs if run.points]
    if not runs:
        return None
    x = np.linspace(max(_at(run, 0, key) for run in runs), max(_last(run, key) for run in runs), _POINTS)
    return Curve(x / scale, iqm_band(np.array([_known(run, key, x) for run in runs])))


def _known(run: JudgedRun, key: str, x: Floats) -> Floats:
    """The newest training return of a run that was known at each of ``x``, f64[points]."""
    places = np.array([_at(run, position, key) for position in range(len(run.points))])
    values = np.array([number(point["mean_return"]) for point in run.points], np.float64)
    return values[np.searchsorted(np.maximum.accumulate(places), x, side="right") - 1]


def _at(run: JudgedRun, position: int, key: str) -> float:
    return number(run.points[position].get(key)) or 0.0


def _last(run: JudgedRun, key: str) -> float:
    return max((number(record.get(key)) or 0.0 for record in (*run.points, *run.evaluations)), default=0.0)


def _chart(
    title: str,
    groups: Sequence[Group],
    curve_of: Callable[[Group], Curve | None],
    x_label: str,
    y_label: str,
    *,
    from_zero: bool = False,
) -> Chart:
    series = []
    for colour, group in enumerate(groups):
        curve = curve_of(group)
        if curve is None:
            continue
        name = textwrap.shorten(f"{group.name}: {group.words}", _LEGEND_CHARACTERS, placeholder=" ...")
        band = curve.band
        around = list(zip(band.low.tolist(), band.high.tolist(), strict=True)) if len(group.runs) > 1 else ()
        points = list(zip(curve.x.tolist(), band.value.tolist(), strict=True))
        series.append(Series(name, points, colour=colour, around=around))
    return line_chart(title, series, x_label=x_label, y_label=y_label, from_zero=from_zero)


def render_comparison(comparison: Comparison) -> str:
    """The page. Every text of the runs' folders is escaped."""
    return (
        environment_of_pages()
        .get_template("comparison.html.jinja")
        .render(
            comparison=comparison,
            charts=comparison_charts(comparison),
            drawn=MOST_DRAWN,
            undrawn=len(comparison.groups[MOST_DRAWN:]),
            colours=COLOURS,
            confidence_percent=CONFIDENCE_PERCENT,
            resamples=RESAMPLES,
        )
    )


def environment_of_pages() -> Environment:
    """Templates of this room, with its words for figures."""
    environment = page_environment("rljob.comparison")
    environment.filters |= {
        "estimate": estimate_in_words,
        "percent": percent_in_words,
        "frames": lambda value: median_in_words(value, compact),
        "duration": lambda value: median_in_words(value, duration),
    }
    return environment

"""A comparison as one page without other files, in the style of a run's report, in words for a terminal, and as a document for
other programs. The same runs give the same bytes.

The drawings of a comparison: training return over frames and time, runs solved over time, the profile of verdicts.
"""

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from jinja2 import Environment

from rljob.comparison.comparison import Comparison
from rljob.comparison.estimates import CONFIDENCE_PERCENT, RESAMPLES, Band, Estimate, Floats, iqm_band, share_band
from rljob.comparison.group import Group
from rljob.comparison.judged_run import JudgedRun
from rljob.strict_json import finite
from rljob.telemetry.charts import COLOURS, Chart, Series, compact, line_chart, page_environment
from rljob.telemetry.flat_figures import number
from rljob.telemetry.report import duration
from rljob.telemetry.run_charts import time_unit

MOST_DRAWN: Final = 7
"""Groups that are drawn, each in a colour of its own; they are those with the highest interquartile means."""
_POINTS: Final = 200
_LEGEND_CHARACTERS: Final = 60


Curve = tuple[Floats, Band]
"""A line over x, f64[points], with the band around it."""


def comparison_charts(comparison: Comparison) -> list[Chart]:
    """The drawings; those without anything to draw are left out."""
    groups = comparison.groups[:MOST_DRAWN]
    longest = max((_last(run, "elapsed_seconds") for group in groups for run in group.runs), default=0.0)
    unit, scale = time_unit(longest)
    scores = [score for group in groups for score in group.scores]
    times, levels = np.linspace(0.0, longest, _POINTS), np.linspace(min(scores), max(scores), _POINTS)

    def solved(group: Group) -> Curve | None:
        seconds = [each.seconds for each in group.to_target]
        return (times / scale, share_band(seconds, times)) if seconds else None

    def profile(group: Group) -> Curve | None:
        # A verdict is at least at a level where its negative is at most there.
        return (levels, share_band(-np.array(group.scores), -levels)) if group.scores else None

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
    return x / scale, iqm_band(np.array([_known(run, key, x) for run in runs]))


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
        if (curve := curve_of(group)) is not None:
            x, band = curve
            name = textwrap.shorten(f"{group.name}: {group.words}", _LEGEND_CHARACTERS, placeholder=" ...")
            around = list(zip(band.low.tolist(), band.high.tolist(), strict=True)) if len(group.runs) > 1 else ()
            points = list(zip(x.tolist(), band.value.tolist(), strict=True))
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


NOT_REACHED: Final = "not within budget"
_WIDTH: Final = 120
_SETTINGS_CHARACTERS: Final = 400


def lines(comparison: Comparison) -> Iterator[str]:
    """What a terminal is told."""
    aim = f"target {' or '.join(map(str, comparison.targets))}" if comparison.targets else "no target"
    yield f"{comparison.environment}, verdicts of {comparison.games} games, {aim}"
    yield ""
    yield from _aligned(_rows(comparison))
    yield ""
    for group in comparison.groups:
        settings = textwrap.shorten(group.words, _SETTINGS_CHARACTERS, placeholder=" ... (--json has all)")
        yield from _wrapped(f"{group.name}: ", settings)
    if comparison.pairs:
        yield ""
    for pair in comparison.pairs:
        yield f"{pair.better} beats {pair.than} with probability {estimate_in_words(pair.probability)}"
    if comparison.notes:
        yield ""
    for note in comparison.notes:
        yield from _wrapped("note: ", note)


def document(comparison: Comparison) -> dict[str, Any]:
    """The same with every number, as plain values; what was not reached, and what is not known, is null."""
    return {
        "environment": comparison.environment,
        "games": comparison.games,
        "targets": [
            {"figure": each.figure, "value": each.value, "window_evaluations": each.window_evaluations}
            for each in comparison.targets
        ],
        "confidence_percent": CONFIDENCE_PERCENT,
        "resamples": RESAMPLES,
        "groups": [_group(group) for group in comparison.groups],
        "pairs": [
            {"better": pair.better, "than": pair.than, "probability": _estimate(pair.probability)}
            for pair in comparison.pairs
        ],
        "notes": list(comparison.notes),
    }


def estimate_in_words(estimate: Estimate | None) -> str:
    """``18.31 (17.90 to 18.62)``; the value alone where it has no interval."""
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return _score(estimate.value)
    return f"{_score(estimate.value)} ({_score(estimate.low)} to {_score(estimate.high)})"


def median_in_words(value: float, words: Callable[[float], str]) -> str:
    """What it took, or that it did not happen."""
    return words(value) if math.isfinite(value) else NOT_REACHED


def percent_in_words(part: int, whole: int) -> str:
    """``7 of 10 (70 %)``."""
    return f"{part} of {whole} ({100 * part / whole:.0f} %)"


def _rows(comparison: Comparison) -> Iterator[Sequence[str]]:
    """Headings, and a row a group."""
    interval = f"({CONFIDENCE_PERCENT} %)"
    solved = ("solved", "median frames", "median time") if comparison.targets else ()
    yield ("group", "runs", f"IQM of verdicts {interval}", f"mean {interval}", *solved)
    for group in comparison.groups:
        took = group.median_to_target
        yield (
            group.name,
            f"{len(group.runs)}",
            estimate_in_words(group.iqm),
            estimate_in_words(group.mean),
            *(
                (
                    percent_in_words(group.solved, len(group.runs)),
                    median_in_words(took.raw_frames, compact),
                    median_in_words(took.seconds, duration),
                )
                if comparison.targets
                else ()
            ),
        )


def _group(group: Group) -> dict[str, Any]:
    took = group.median_to_target
    targets = bool(group.to_target)
    return {
        "name": group.name,
        "settings": dict(group.settings),
        "runs": [_run(run) for run in group.runs],
        "solved": group.solved if targets else None,
        "solved_share": group.solved / len(group.runs) if targets else None,
        "iqm": _estimate(group.iqm),
        "mean": _estimate(group.mean),
        "median_raw_frames_to_target": finite(took.raw_frames),
        "median_seconds_to_target": finite(took.seconds),
        "raw_frames_to_target": [finite(each.raw_frames) for each in group.to_target],
        "seconds_to_target": [finite(each.seconds) for each in group.to_target],
    }


def _run(run: JudgedRun) -> dict[str, Any]:
    last = run.evaluations[-1] if run.evaluations else {}
    return {
        "path": str(run.path),
        "seed": run.seed,
        "ended": run.ended,
        "verdict": run.score,
        "standard_error": number(last.get("standard_error")),
        "games": last.get("episodes"),
        "given_up": run.given_up,
    }


def _estimate(estimate: Estimate | None) -> dict[str, float | None] | None:
    return None if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _score(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 10_000 else compact(value)


def _aligned(rows: Iterator[Sequence[str]]) -> Iterator[str]:
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    yield from ("   ".join(map(str.ljust, row, widths)).rstrip() for row in table)


def _wrapped(start: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)

"""A comparison as one page without other files, in the style of a run's report. The same runs give the same bytes."""

from __future__ import annotations

from jinja2 import Environment

from rljob.comparison.comparison import Comparison
from rljob.comparison.curves import MOST_DRAWN, comparison_charts
from rljob.comparison.estimates import CONFIDENCE_PERCENT, RESAMPLES
from rljob.comparison.words import estimate_in_words, median_in_words, percent_in_words
from rljob.telemetry.charts import COLOURS, compact
from rljob.telemetry.page import page_environment
from rljob.telemetry.report import duration


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

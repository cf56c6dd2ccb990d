"""A comparison in words for a terminal, and as a document for other programs."""

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from rljob.comparison.comparison import Comparison
from rljob.comparison.estimates import CONFIDENCE_PERCENT, RESAMPLES, Estimate
from rljob.comparison.group import Group
from rljob.comparison.judged_run import JudgedRun
from rljob.strict_json import finite
from rljob.telemetry.charts import compact
from rljob.telemetry.flat_figures import number
from rljob.telemetry.report import duration

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

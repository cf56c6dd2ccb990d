"""``report.html``: a run folder as one page that stands alone, with the bottleneck named first."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from rljob.telemetry.bottleneck import Kind, Verdict, bottleneck
from rljob.telemetry.charts import COLOURS, NO_BANDS, Bands, Chart, Series, compact, line_chart, stacked_bars
from rljob.telemetry.figures import number
from rljob.telemetry.fill_trend import fill_trend
from rljob.telemetry.run_folder import RunFolder, read_run_folder

REPORT_FILE: Final = "report.html"
TRAINING: Final = "Training"

Points = Sequence[Mapping[str, Any]]


def write_report(run_dir: Path) -> Path:
    """Writes ``run_dir/report.html`` (write, then rename) from whatever the folder holds, and returns its path.

    Raises:
        NotADirectoryError: there is no such folder.
        OSError: the page cannot be written.
    """
    page = render(read_run_folder(run_dir))
    path = run_dir / REPORT_FILE
    partial = path.with_suffix(".html.partial")
    partial.write_text(page, encoding="utf-8")
    os.replace(partial, path)
    return path


def render(run: RunFolder) -> str:
    """The page for a run. Every text of the folder is escaped."""
    environment = Environment(
        loader=PackageLoader("rljob.telemetry"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["compact"] = compact
    environment.filters["duration"] = duration
    environment.filters["instant"] = instant
    environment.filters["size"] = size
    environment.filters["grouped"] = grouped
    shares = mean_stages(run.points)
    return environment.get_template("report.html.jinja").render(
        run=run,
        verdict=judge(run.points, cores=shared_cores(run)),
        trend=fill_trend(run.points),
        tiles=tiles(run),
        learning=learning_charts(run),
        charts=[chart for chart in run_charts(run.points, run.evaluations) if chart.svg],
        stages=shares,
        stage_chart=stacked_bars("Time per stage of each role", shares),
        colours=COLOURS,
        written_unix=datetime.now(UTC).timestamp(),
    )


def shared_cores(run: RunFolder) -> int | None:
    """Cores of the machine that all roles of the run share; None where they had machines of their own."""
    machine = run.facts.get("machine")
    cores = number(machine.get("cores")) if isinstance(machine, Mapping) else None
    return int(cores) if cores is not None and run.roles else None


def judge(points: Points, *, cores: int | None = None) -> Verdict:
    """The bottleneck of the whole run: its mean figures while it trained; before that, that it is warming up. ``cores`` as
    `bottleneck` takes it."""
    if not points:
        return Verdict(Kind.WarmingUp, "No figures were recorded, so there is nothing to judge yet.", 0.0)
    training = [point for point in points if point.get("state", TRAINING) == TRAINING]
    if not training:
        return bottleneck(_numbers(points[-1]), state=str(points[-1].get("state", "")), cores=cores)
    return bottleneck(mean_figures(training), cores=cores)


def mean_figures(points: Points) -> dict[str, float]:
    """The mean of each figure over the records that have it, each weighted with the time since the record before."""
    totals: dict[str, tuple[float, float]] = {}
    before = 0.0
    for point in points:
        elapsed = number(point.get("elapsed_seconds")) or 0.0
        weight, before = max(elapsed - before, 1e-3), elapsed
        for name, value in _numbers(point).items():
            whole, weights = totals.get(name, (0.0, 0.0))
            totals[name] = whole + weight * value, weights + weight
    return {name: whole / weights for name, (whole, weights) in totals.items()}


def mean_stages(points: Points) -> dict[str, dict[str, float]]:
    """``{role: {stage: share}}`` over the run, from the learner outwards."""
    shares: dict[str, dict[str, float]] = {}
    for name, share in mean_figures(points).items():
        prefix, _, rest = name.partition("/")
        role, _, stage = rest.partition("/")
        if prefix == "stage" and stage:
            shares.setdefault(role, {})[stage] = share
    order = {"learner": 0, "replay": 1, "actor": 2}
    return dict(sorted(shares.items(), key=lambda item: (order.get(item[0], 9), item[0])))


def tiles(run: RunFolder) -> list[tuple[str, str, str]]:
    """(label, value, remark) of the figures that stand at the top; those that are not known are left out."""
    found: list[tuple[str, str, str]] = []
    judged = evaluations(run)
    if best := max(judged or evaluations(run, finished=False), key=lambda one: float(one["mean"]), default=None):
        error = number(best.get("standard_error"))
        episodes = number(best.get("episodes"))
        remark = f"± {error:.2g}" if error is not None else ""
        remark += f" over {episodes:.0f} games" if episodes else ""
        found.append(("Best evaluation", f"{best['mean']:.2f}", remark if judged else f"{remark}, then given up"))
    if run.points:
        last, mean = run.points[-1], mean_figures([p for p in run.points if p.get("state", TRAINING) == TRAINING])
        if (value := number(last.get("mean_return"))) is not None:
            found.append(("Training return", f"{value:.2f}", "mean of the last games"))
        found.append(("Raw frames", compact(number(last.get("raw_frames")) or 0), ""))
        found.append(("Updates", compact(number(last.get("updates")) or 0), ""))
        for label, name, remark in (
            ("Steps a second", "steps_per_second", "mean while training"),
            ("Updates a second", "updates_per_second", "mean while training"),
        ):
            if name in mean:
                found.append((label, compact(round(mean[name], 1)), remark))
    seconds = number(run.outcome.get("seconds"))
    if seconds is None and run.points:
        seconds = number(run.points[-1].get("elapsed_seconds"))
    if seconds is not None:
        found.append(("Wall time", duration(seconds), ""))
    return found


def evaluations(run: RunFolder, *, finished: bool = True) -> list[Mapping[str, Any]]:
    """The evaluations that have a mean: those played to the end, or those given up because the target was out of reach."""
    judged = [one for one in run.evaluations if number(one.get("mean")) is not None]
    return [one for one in judged if bool(one.get("finished", True)) is finished]


def learning_charts(run: RunFolder) -> list[Chart]:
    """The learning curve over raw frames and over wall time; empty drawings are left out."""
    charts = []
    longest = max((number(point.get("elapsed_seconds")) or 0.0 for point in run.points), default=0.0)
    unit, scale = time_unit(longest)
    target = _target(run)
    for title, key, label, factor in (
        ("Return over raw frames", "raw_frames", "raw frames", 1.0),
        ("Return over wall time", "elapsed_seconds", f"wall time ({unit})", scale),
    ):
        training = _line(run.points, "mean_return", key, factor)
        judged, abandoned = evaluations(run), evaluations(run, finished=False)
        marks = [((number(one.get(key)) or 0.0) / factor, float(one["mean"])) for one in judged]
        early = [((number(one.get(key)) or 0.0) / factor, float(one["mean"])) for one in abandoned]
        errors = [number(one.get("standard_error")) or 0.0 for one in judged]
        xs = [x for x, _ in [*training, *marks, *early]]
        bound = [(min(xs), target), (max(xs), target)] if xs and target is not None else []
        chart = line_chart(
            title,
            [
                Series("target", bound, colour=7, dashed=True),
                Series("training, last 20 games", training, colour=0),
                Series("evaluation given up early", early, colour=7, marks=True),
                Series("evaluation ± standard error", marks, colour=1, marks=True, errors=errors),
            ],
            x_label=label,
            y_label="return a game",
            bands=evaluation_bands(run.evaluations, factor) if key == "elapsed_seconds" else NO_BANDS,
        )
        charts.append(chart)
    return [chart for chart in charts if chart.svg]


def evaluation_bands(evaluations: Points, scale: float) -> Bands:
    """When the evaluator played: on a machine that all roles share, training gets what it leaves."""
    ends = [(number(one.get("elapsed_seconds")), number(one.get("seconds"))) for one in evaluations]
    spans = [((end - took) / scale, end / scale) for end, took in ends if end is not None and took is not None]
    return Bands("evaluation under way", spans)


def run_charts(points: Points, evaluations: Points = ()) -> list[Chart]:
    """Throughput, queue, actors, replay and lag over wall time, drawn where the figures exist."""
    unit, scale = time_unit(max((number(point.get("elapsed_seconds")) or 0.0 for point in points), default=0.0))
    x_label, bands = f"wall time ({unit})", evaluation_bands(evaluations, scale)

    def line(name: str, key: str, colour: int = 0, dashed: bool = False) -> Series:
        return Series(name, _line(points, key, "elapsed_seconds", scale), colour=colour, dashed=dashed)

    plans: list[tuple[str, str, list[Series]]] = [
        ("Agent steps a second", "steps/s", [line("all actors", "steps_per_second")]),
        ("Updates a second", "updates/s", [line("learner", "updates_per_second", 1)]),
        (
            "Learner queue depth",
            "batches",
            [line("depth", "queue_depth_batches"), line("bound", "queue_bound_batches", 7, dashed=True)],
        ),
        ("Actors at work", "actors", [line("actors", "actors_running", 2)]),
        (
            "Who waits for whom",
            "share of time",
            [line("learner waits", "learner_wait_fraction"), line("actors held back", "actors_blocked_fraction", 1)],
        ),
        (
            "Replay fill",
            "transitions",
            [line("stored", "replay/items", 2), line("capacity", "replay/capacity", 7, dashed=True)],
        ),
        (
            "Unrolls a second",
            "unrolls/s",
            [line("from actors", "production_per_second", 2), line("learned", "consumption_per_second", 1)]
            if any("queue/capacity" in point for point in points)
            else [],
        ),
        (
            "Unrolls given up",
            "unrolls",
            [line("too old", "queue/dropped/stale", 5), line("overflow", "queue/dropped/overflow", 1)],
        ),
        (
            "Policy lag",
            "updates",
            [line("mean", "policy_lag_updates", 3), line("95th percentile", "policy_lag_updates_p95", 7, dashed=True)],
        ),
        ("Entropy of the policy", "nats", [line("entropy", "entropy", 4)]),
        (
            "From the policy that acted to the one that learns",
            "",
            [line("KL divergence", "policy_kl", 3), line("share clipped", "clip_share", 5)],
        ),
        ("Learning rate", "", [line("of the last update", "learning_rate", 4)]),
        ("Samples per insert", "samples", [line("so far", "samples_per_insert", 4)]),
        (
            "Answers of the inference server in the learner",
            "ms",
            [
                _scaled(line("median", "inference/latency_p50_seconds"), 1e3),
                _scaled(line("99th percentile", "inference/latency_p99_seconds", 1), 1e3),
            ],
        ),
        ("Observations a batch of it", "observations", [line("mean so far", "inference/batch_mean", 2)]),
        ("Memory of the learner", "MiB", [_scaled(line("resident", "rss_bytes", 5), 1 / 2**20)]),
    ]
    return [
        line_chart(
            title, series, x_label=x_label, y_label=y_label, from_zero=True, whole=y_label == "actors", bands=bands
        )
        for title, y_label, series in plans
    ]


def _scaled(one: Series, factor: float) -> Series:
    return replace(one, points=[(x, y * factor) for x, y in one.points])


def _line(points: Points, name: str, key: str, factor: float) -> list[tuple[float, float]]:
    """(x, y) of a figure; where it is missing between two records the line breaks."""
    line = [
        (
            (number(point.get(key)) or 0.0) / factor,
            value if (value := number(point.get(name))) is not None else float("nan"),
        )
        for point in points
    ]
    return line if any(y == y for _, y in line) else []


def _numbers(point: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, raw in point.items() if (value := number(raw)) is not None}


def _target(run: RunFolder) -> float | None:
    """The return that the success policy asks for, if the manifest has one."""
    node: Any = run.job
    for key in ("spec", "successPolicy", "targetReturn", "value"):
        node = node.get(key) if isinstance(node, Mapping) else None
    try:
        return number(float(node))
    except (TypeError, ValueError):
        return None


def time_unit(longest_seconds: float) -> tuple[str, float]:
    """The unit for a time axis and its length in seconds."""
    if longest_seconds >= 3 * 3600:
        return "h", 3600.0
    return ("min", 60.0) if longest_seconds >= 180 else ("s", 1.0)


def duration(seconds: object) -> str:
    """``4 min 05 s`` and the like; an empty text if it is no number."""
    value = number(seconds)
    if value is None or value < 0:
        return ""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def instant(unix_seconds: object) -> str:
    """A moment as ``2026-03-01 12:30:05 UTC``; an empty text if it is none."""
    value = number(unix_seconds)
    if value is None:
        return ""
    try:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return ""


def grouped(count: object) -> str:
    """A whole number with its thousands set apart; an empty text if it is none."""
    value = number(count)
    return "" if value is None else f"{value:,.0f}"


def size(count_bytes: object) -> str:
    """Bytes with a binary unit."""
    value = number(count_bytes)
    if value is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"

"""``report.html``: a run folder as one page without other files, with the bottleneck named first."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from rljob.api import ManifestError, RLJob, parse_job
from rljob.files import replace
from rljob.telemetry.bottleneck import Bottleneck, Kind, bottleneck
from rljob.telemetry.charts import COLOURS, Chart, Series, compact, line_chart, page_environment, stacked_bars
from rljob.telemetry.flat_figures import Points, mean_figures, mean_stages, number, numbers_in, with_returns_to_go_by
from rljob.telemetry.run_charts import (
    MOST_LEARNING_FIGURES,
    evaluations,
    figure_charts,
    learning_charts,
    learning_figures,
    run_charts,
)
from rljob.telemetry.run_folder import RunFolder, read_run_folder
from rljob.telemetry.sizing import NextUnits, next_units


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
    with suppress(OverflowError, OSError, ValueError):
        return "" if value is None else datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
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


REPORT_FILE: Final = "report.html"
TRAINING: Final = "Training"
EVALUATING: Final = "Evaluating"


def write_report(run_dir: Path) -> Path:
    """Writes ``run_dir/report.html`` from whatever the folder holds, and returns its path.

    Raises NotADirectoryError where there is no such folder, OSError where the page cannot be written.
    """
    path = run_dir / REPORT_FILE
    replace(path, render(read_run_folder(run_dir)))
    return path


def render(run: RunFolder) -> str:
    """The page for a run. Every text of the folder is escaped."""
    environment = page_environment()
    environment.filters |= {each.__name__: each for each in (compact, duration, instant, size, grouped)}
    shares, rows = mean_stages(run.points), learning_figures(run)
    buys = what_buys(run)
    return environment.get_template("report.html.jinja").render(
        run=run,
        verdict=judge(run.points, cores=shared_cores(run)),
        buys=buys,
        buys_chart=knee_chart(buys) if buys is not None else None,
        tiles=tiles(run),
        resumed=earlier_seconds(run) > 0,
        learning=learning_charts(run),
        figures=figure_charts(run, rows[:MOST_LEARNING_FIGURES]),
        undrawn=len(rows[MOST_LEARNING_FIGURES:]),
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


def judge(points: Points, *, cores: int | None = None) -> Bottleneck:
    """The bottleneck of the whole run: its mean figures while it trained; before that, that it is warming up. ``cores`` as
    `bottleneck` takes it."""
    if not points:
        return Bottleneck(Kind.WarmingUp, "No figures were recorded yet.", 0.0)
    training = [point for point in points if point.get("state", TRAINING) == TRAINING]
    if not training:
        return bottleneck(numbers_in(points[-1]), state=str(points[-1].get("state", "")), cores=cores)
    return bottleneck(mean_figures(training), cores=cores)


def what_buys(run: RunFolder) -> NextUnits | None:
    """What one more of each thing would bring, by the later half of the time in which the run trained: by then it goes as fast as
    it will. None where that does not tell, or its job can't be read."""
    try:
        job: RLJob = parse_job(run.job)
    except ManifestError:
        return None
    training = [point for point in run.points if point.get("state", TRAINING) == TRAINING]
    later = training[len(training) // 2 :]
    if len(later) == len(training):
        return None
    begun = number(training[len(training) // 2 - 1].get("elapsed_seconds")) or 0.0
    progress = run.status.get("progress")
    left = number(progress.get("estimatedSecondsRemaining")) if isinstance(progress, Mapping) else None
    took = number(training[-1].get("elapsed_seconds"))
    return next_units(
        mean_figures(later, begun),
        job.spec,
        cores=shared_cores(run),
        seconds_left=took if run.outcome or left is None else left,
    )


def knee_chart(buys: NextUnits) -> Chart:
    """Steps a second over the number of actors, with the knee and the present number marked."""
    nearest = min(buys.curve, key=lambda point: abs(point[0] - buys.knee))
    now = [(float(count), rate) for count, rate in buys.curve if count == buys.actors]
    return line_chart(
        "Steps a second with more actors, each on a core of its own",
        [
            Series("as computed", [(float(count), rate) for count, rate in buys.curve]),
            Series("now", now, colour=1, marks=True),
            Series("the knee", [(buys.knee, nearest[1])], colour=5, marks=True),
        ],
        x_label="actors",
        y_label="steps/s",
        from_zero=True,
    )


def tiles(run: RunFolder) -> list[tuple[str, str, str]]:
    """(label, value, remark) of the figures that stand at the top; those that are not known are left out."""
    found: list[tuple[str, str, str]] = []
    judged, training = evaluations(run), [point for point in run.points if point.get("state", TRAINING) == TRAINING]
    if best := max(judged or evaluations(run, finished=False), key=lambda one: float(one["mean"]), default=None):
        error, episodes = number(best.get("standard_error")), number(best.get("episodes"))
        remark = f"± {error:.2g}" if error is not None else ""
        remark += f" over {episodes:.0f} games" if episodes else ""
        found.append(("Best evaluation", f"{best['mean']:.2f}", remark if judged else f"{remark}, then given up"))
    if run.points:
        last, mean = run.points[-1], mean_figures(training)
        played, updates = (compact(number(last.get(name)) or 0) for name in ("raw_frames", "updates"))
        found += [*_training_return(run), ("Raw frames", played, ""), ("Updates", updates, "")]
        for what in ("steps", "updates"):
            if rate := mean.get(f"{what}_per_second"):
                found.append((f"{what.capitalize()} a second", compact(round(rate, 1)), "mean while training"))
    times, seconds_still = stood_still(run.points)
    if times:
        found.append(("Stood still", duration(seconds_still), f"for {times} verdict{'s' * (times > 1)}"))
    ends = (run.outcome.get("seconds"), run.points[-1].get("elapsed_seconds") if run.points else None)
    seconds = next((end for each in ends if (end := number(each)) is not None), None)
    if seconds is not None:
        earlier = earlier_seconds(run)
        remark = f"{duration(seconds)} of it in the last session" if earlier else ""
        found.append(("Wall time", duration(earlier + seconds), remark))
    return found


def stood_still(points: Points) -> tuple[int, float]:
    """How often training stood still for the games of an evaluation, and for how many seconds, as the records tell."""
    stood = [pair for pair in pairwise(points) if pair[1].get("state") == EVALUATING]
    lasted = ((number(point.get("elapsed_seconds")) or 0.0 for point in pair) for pair in stood)
    return (
        sum(before.get("state") != EVALUATING for before, _ in stood),
        sum(max(0.0, end - begin) for begin, end in lasted),
    )


def earlier_seconds(run: RunFolder) -> float:
    """How long the run had gone on when its last session was started; 0 where that was the first one."""
    started = number(run.outcome.get("started_unix"))
    ends = [
        number(record.get("elapsed_seconds")) or 0.0
        for record in (*run.points, *run.evaluations, *run.checkpoints)
        if started is not None and (number(record.get("time_unix")) or started) < started
    ]
    return max(ends, default=0.0)


def _training_return(run: RunFolder) -> list[tuple[str, str, str]]:
    """The newest mean of enough games."""
    for point in reversed(with_returns_to_go_by(run.points)):
        if (value := number(point.get("mean_return"))) is not None:
            games = number(point.get("games"))
            several = f"{games:.0f} games" if games else "games"
            return [("Training return", f"{value:.2f}", f"mean of the last {several}")]
    return []

"""The charts of a run: its learning curve, and throughput, queue, waiting and lag over wall time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rljob.api.learner_status import RECORDED_NAMES
from rljob.api.problems import value_at
from rljob.telemetry.charts import NO_BANDS, SMALL, Bands, Chart, Series, line_chart
from rljob.telemetry.flat_figures import Points, number, numbers_in, with_returns_to_go_by
from rljob.telemetry.run_folder import RunFolder

LEARNING_FIGURES: Final = (
    ("Episode length", "mean_length_steps", "steps a game"),
    ("Loss", "loss", "mean of updates"),
    ("Loss of the policy", "policy_loss", "mean of updates"),
    ("Loss of the values", "value_loss", "mean of updates"),
    ("Loss of the critics", "critic_loss", "mean of updates"),
    ("Value of what was seen", "value", "units of the reward"),
    ("Value of what was done", "q_taken", "units of the reward"),
    ("Entropy of the policy", "entropy", "nats"),
    ("Temperature", "temperature", "reward a nat"),
    ("Gradient norm, before clipping", "gradient_norm", "mean of updates"),
    ("Learning rate", "learning_rate", "of the last update"),
    ("KL from the policy that acted", "policy_kl", "nats"),
    ("Clip fraction", "clip_share", "share of steps"),
    ("Explained variance of the values", "explained_variance", "share"),
    ("Advantage spread", "advantage_std", "standard deviation"),
    ("Log-std of continuous actions", "log_std", "mean"),
    ("Scale of the loss in fp16", "loss_scale", "factor"),
)
"""What tells of learning beside the return: title, name of the figure, unit."""
PROCESS_FIGURES: Final = (
    ("CPU of each role", "cpu_cores", "cores", 1.0),
    ("Cores that each role waited for", "core_wait_cores", "cores", 1.0),
    ("Resident memory of each role", "rss_bytes", "MiB", 1 / 2**20),
    ("Shared memory of each role", "shm_bytes", "MiB", 1 / 2**20),
    ("Open files of each role", "open_files", "files", 1.0),
    ("Bytes in sockets, not read yet", "receive_queue_bytes", "KiB", 1 / 2**10),
    ("Bytes in sockets, not sent yet", "send_queue_bytes", "KiB", 1 / 2**10),
)
"""What the processes of a role take, added up: title, name of the figure, unit, factor."""
_ROLES: Final = {"learner": 1, "replay": 2, "evaluator": 3, "actor": 0}
MOST_LEARNING_FIGURES: Final = 48
"""Charts of such figures on a page, each some kilobytes."""


def evaluations(run: RunFolder, *, finished: bool = True) -> list[Mapping[str, Any]]:
    """The evaluations that have a mean: those played to the end, or those given up below their target."""
    judged = [one for one in run.evaluations if number(one.get("mean")) is not None]
    return [one for one in judged if bool(one.get("finished", True)) is finished]


def learning_charts(run: RunFolder) -> list[Chart]:
    """The learning curve over raw frames and over wall time; empty drawings are left out."""
    charts = []
    unit, scale = time_unit(max((number(point.get("elapsed_seconds")) or 0.0 for point in run.points), default=0.0))
    target = _target(run)
    for title, key, label, factor in (
        ("Return over raw frames", "raw_frames", "raw frames", 1.0),
        ("Return over wall time", "elapsed_seconds", f"wall time ({unit})", scale),
    ):
        training = _line(with_returns_to_go_by(run.points), "mean_return", key, factor)
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


def learning_figures(run: RunFolder) -> list[tuple[str, str, str]]:
    """Those figures that the run has, as rows of ``LEARNING_FIGURES``: what the environment reports of its episodes, the rows of
    the table, and what else the algorithm reports, in its own order."""
    named = dict.fromkeys(name for point in run.points for name in numbers_in(point))
    judged = dict.fromkeys(name for one in evaluations(run) for name in numbers_in(one))
    of_episodes = sorted(name for name in {*named, *judged} if name.startswith("episode/"))
    known = {name for _, name, _ in LEARNING_FIGURES}
    own = [name for name in named if name not in known and name.partition("/")[0] not in RECORDED_NAMES]
    return [
        *(
            (f"{name.removeprefix('episode/')}, as the environment reports it", name, "mean of games")
            for name in of_episodes
        ),
        *(row for row in LEARNING_FIGURES if row[1] in named),
        *((f"{name}, as the algorithm reports it", name, "mean of updates") for name in own),
    ]


def figure_charts(run: RunFolder, rows: Sequence[tuple[str, str, str]]) -> list[Chart]:
    """A small chart over raw frames for each of these figures, with the evaluations' where they have it, too."""
    points, judged = with_returns_to_go_by(run.points), evaluations(run)
    charts = []
    for title, name, unit in rows:
        marks = _line(judged, name, "raw_frames", 1.0)
        series = [Series("training", _line(points, name, "raw_frames", 1.0))]
        series += [Series("evaluation", marks, colour=1, marks=True)] if marks else []
        charts.append(line_chart(title, series, x_label="raw frames", y_label=unit, from_zero=True, size=SMALL))
    return [chart for chart in charts if chart.svg]


def evaluation_bands(evaluations: Points, scale: float) -> Bands:
    """When the evaluator played: on a machine that all roles share, training then gets less."""
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
        (
            "The learner's GPU",
            "share",
            [
                line("of time, computing", "gpu/utilization", 1),
                line("of its multiprocessors, busy", "gpu/sm_activity", 3),
                line("of time, memory in use", "gpu/memory_utilization", 4),
            ],
        ),
        (
            "Memory of the GPU",
            "GiB",
            [
                _scaled(line("in use", "gpu/memory_used_bytes", 2), 1 / 2**30),
                _scaled(line("there is", "gpu/memory_total_bytes", 7, dashed=True), 1 / 2**30),
            ],
        ),
        (
            "Power of the GPU",
            "W",
            [line("drawn", "gpu/power_watts", 5), line("limit", "gpu/power_limit_watts", 7, dashed=True)],
        ),
        *(
            (
                title,
                unit,
                [_scaled(line(role, f"processes/{role}/{name}", colour), factor) for role, colour in _ROLES.items()],
            )
            for title, name, unit, factor in PROCESS_FIGURES
        ),
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


def _target(run: RunFolder) -> float | None:
    """The return that the success policy asks for, if the manifest has one."""
    try:
        return number(float(value_at(run.job, "spec.successPolicy.targetReturn.value")))
    except (TypeError, ValueError):
        return None


def time_unit(longest_seconds: float) -> tuple[str, float]:
    """The unit for a time axis and its length in seconds."""
    if longest_seconds >= 3 * 3600:
        return "h", 3600.0
    return ("min", 60.0) if longest_seconds >= 180 else ("s", 1.0)

"""The report: complete, partial, empty and hostile run folders, and drawings whose geometry is checked."""

import json
import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from rljob.api import dump_manifest, load_manifest
from rljob.telemetry.charts import Series, compact, line_chart, nice_ticks, stacked_bars, thinned
from rljob.telemetry.flat_figures import mean_figures
from rljob.telemetry.recorder import Recorder
from rljob.telemetry.report import duration, instant, size, stood_still, tiles, write_report
from rljob.telemetry.run_charts import LEARNING_FIGURES, figure_charts, learning_charts, learning_figures, run_charts
from rljob.telemetry.run_folder import read_run_folder

from tests.support.pages import Page
from tests.support.paths import EXAMPLES

SVG = "{http://www.w3.org/2000/svg}"


def read(path: Path) -> Page:
    return Page(path.read_text())


def recorded(folder: Path, *records: dict[str, Any]) -> Path:
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)))
    return folder


def complete_run(folder: Path, evil: str = "") -> None:
    with Recorder(folder) as recorder:
        for i in range(40):
            evaluations = [
                {
                    "version": v, "updates": v * 10, "raw_frames": v * 100, "mean": v - 20.0,
                    "standard_error": 0.4, "episodes": 20, "seconds": 3.0, "finished": v != 30,
                }
                for v in range(10, i, 10)
            ]  # fmt: skip
            recorder.record_status(
                {
                    "role": "learner", "state": "Training" if i > 5 else "WarmingUp", "updates": i * 10,
                    "raw_frames_total": i * 100, "mean_return": i - 21.0, "queue_depth_batches": 0.0,
                    "queue_bound_batches": 8.0, "learner_wait_fraction": 0.62, "actors_blocked_fraction": 0.0,
                    "episode": {"is_success" + evil: i / 40},
                    "policy_lag_updates": 12.0, "updates_per_second": 20.0, "steps_per_second": 900.0,
                    "samples_per_insert": 8.0, "replay": {"items": i * 50, "capacity": 2000, "fill": i / 40},
                    "actors": [{"state": "Running"}] * 2, "evaluations": evaluations, "device": "cpu" + evil,
                    "rewards": "clipped to [-1, 1] (rewardClipping: Auto)" + evil,
                    "stages": {"learner": {"wait": i * 0.62, f"update{evil}": i * 0.38}, "actor": {"env": float(i)}},
                    "checkpoint": {"step": i // 20 * 200, "digest": "sha256:ab" + evil, "state": "Valid", "path": "p"},
                    "rss_bytes": 3e8,
                    "processes": {"learner": {"rss_bytes": 3e8, "cpu_cores": 1.5}, "actor": {"cpu_cores": i / 4}},
                }
            )  # fmt: skip
    head = {"metadata": {"name": "pong" + evil}}
    in_force = {
        "algorithm": {"type": "ApeXDQN" + evil}, "environment": {"id": "ALE/Pong-v5" + evil},
        "successPolicy": {"targetReturn": {"value": 18}},
    }  # fmt: skip
    (folder / "job.yaml").write_text(json.dumps({**head, "spec": {"preset": "PongApeX" + evil}}))
    (folder / "job-effective.yaml").write_text(json.dumps({**head, "spec": in_force}))
    outcome = {
        "state": "Failed", "reason": "BackoffLimit" + evil, "message": "gone" + evil, "seconds": 125.0,
        "started_unix": 1.7e9, "finished_unix": 1.7e9 + 125, "resume": "rljob run --resume" + evil,
    }  # fmt: skip
    (folder / "outcome.json").write_text(json.dumps(outcome))
    for name in ("logs", "roles", "checkpoints/step-200"):
        (folder / name).mkdir(parents=True)
    (folder / "logs" / "actor-0.log").write_text("last words" + evil)
    server = {"role": "inference", "requests_total": 1234, "batch_mean": 6.25, "latency_p50_seconds": 0.0007}
    (folder / "roles" / "inference-0.process.json").write_text("{}")
    (folder / "roles" / "inference-0.final.json").write_text(json.dumps(server))
    end = {"time": "2023-11-14T22:13:20Z", "podName": "inference-0", "exitCode": 137, "message": "no memory" + evil}
    (folder / "status.json").write_text(json.dumps({"failures": [end]}))
    (folder / "checkpoints" / "step-200" / "model.safetensors").write_bytes(bytes(2048))
    (folder / "checkpoints" / "epoch-000001").touch()


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    complete_run(folder := tmp_path_factory.mktemp("complete"))
    return folder


@pytest.fixture
def run(complete: Path, tmp_path: Path) -> Path:
    """A complete run that a test may change."""
    return shutil.copytree(complete, tmp_path / "run")


@pytest.fixture
def priced(run: Path) -> Path:
    """One whose job in force is a whole one."""
    (run / "job-effective.yaml").write_text(dump_manifest(load_manifest(EXAMPLES / "pong-apex.yaml")))
    return run


def test_a_complete_run_is_told_in_full(run: Path) -> None:
    path = write_report(run)
    page = read(path)
    text = page.text
    assert path == run / "report.html"
    assert text.index("Bottleneck") < text.index("Learning")
    for part in (
        "The learner waited 62 % of the time for experience", "pong",
        "ApeXDQN on ALE/Pong-v5", "Failed · BackoffLimit", "2 min 05 s", "Best evaluation", "given up early", "0.00",
        "is_success, as the environment reports it",
        "Learner queue depth", "Actors at work", "Replay fill", "Policy lag", "CPU of each role",
        "Resident memory of each role", "62.0 %", "step-200", "2.0 KiB",
        "clipped to [-1, 1] (rewardClipping: Auto)",
        "as written", '"preset": "PongApeX"', "Effective configuration", '"value": 18',
        "torch 2", "last words", "inference-0", "1,234", "6.2", "0.7 ms", "137", "no memory", "rljob run --resume", "2023-11-14",
    ):  # fmt: skip
        assert part in text, part
    (cores,) = (label for label in page.labels if label.startswith("CPU of each role"))
    assert re.search(
        "actor: from 0 to 9.75.*learner: from 1.5 to 1.5|learner: from 1.5 to 1.5.*actor: from 0 to 9.75", cores
    )
    # What was not measured is not drawn; the mark of an epoch is no checkpoint.
    assert not re.search("Open files of each role|What this report lacks|epoch-000001", text)
    assert page.tags.count("svg") == len(page.labels) >= 11
    assert all(len(label) > 20 for label in page.labels)


def test_what_the_next_unit_buys(priced: Path) -> None:
    """The learner waits 62 % of its time for two actors, which never wait: the knee is at 2 / 0.38 of them."""
    page = read(write_report(priced))
    assert re.search(
        "What the next unit buys.*The knee of one more actor is at 5.3 actors, 2 played", page.text, re.DOTALL
    )
    (drawn,) = (label for label in page.labels if label.startswith("Steps a second with more actors"))
    assert re.search("now: from 900 to 900.*the knee: from", drawn)


@pytest.mark.parametrize(
    "progress", [[], "soon", {"estimatedSecondsRemaining": "soon"}, {"estimatedSecondsRemaining": 1e400}]
)
def test_an_odd_status_makes_the_same_page(progress: Any, priced: Path) -> None:
    (priced / "outcome.json").unlink()
    (priced / "status.json").write_text(json.dumps({"progress": progress}))
    assert "What the next unit buys" in read(write_report(priced)).text


def test_what_the_algorithm_reports_stands_beside_the_return_and_nothing_else(tmp_path: Path) -> None:
    reported = {
        "entropy": 1.25, "policy_kl": 0.0125, "log_std": -0.5, "gradient_norm": 3.0, "learning_rate": 3e-4, "loss": None,
        "td_spread": 2.0, "losses/<odd>": 1.0, "updates": 7, "stage/learner/wait": 0.5, "queue/waiting": 1, "state": "Training",
    }  # fmt: skip
    records = [{"elapsed_seconds": 1.0 * t, "raw_frames": 100 * t, **reported} for t in range(1, 4)]
    page = read(write_report(recorded(tmp_path, *records)))
    run = read_run_folder(tmp_path)
    drawn = [name for _, name, _ in learning_figures(run)]
    in_the_table = [name for _, name, _ in LEARNING_FIGURES if reported.get(name) is not None]
    assert (drawn, len(in_the_table)) == ([*in_the_table, "td_spread", "losses/<odd>"], 5)
    for title, name, _ in LEARNING_FIGURES:
        assert (title in page.words) == (name in in_the_table)
    assert "losses/<odd>, as the algorithm reports it" in page.words
    assert re.search("Learning.*Log-std of continuous actions.*Throughput and flow", page.text, re.DOTALL)
    assert figure_charts(run, learning_figures(run))[0].svg.startswith('<svg class="chart" viewBox="0 0 360 180"')
    (label,) = (label for label in page.labels if label.startswith("Log-std"))
    assert "from -0.5 to -0.5" in label
    assert "more figures" not in page.text


def test_lengths_of_games_and_what_the_environment_reports_have_those_of_evaluations_beside_them(
    tmp_path: Path,
) -> None:
    short = {"raw_frames": 0, "games": 3, "mean_length_steps": 5.0, "mean_return": 5.0, "episode/is_success": 0.0}
    point = {"raw_frames": 100, "games": 20, "mean_length_steps": 50.0, "mean_return": 50.0, "episode/is_success": 0.5}
    judged = {
        "kind": "evaluation",
        "raw_frames": 60,
        "mean": 80.0,
        "mean_length_steps": 80.0,
        "episode/is_success": 1.0,
    }
    run = read_run_folder(recorded(tmp_path, short, point, judged))
    success, length = figure_charts(run, learning_figures(run))
    assert (success.title, length.title) == ("is_success, as the environment reports it", "Episode length")
    assert "evaluation: from 1 to 1" in success.svg
    # A mean of three games says little.
    assert re.search("training: from 50 to 50.*evaluation: from 80 to 80", length.svg)
    assert [(name, kind) for name, _, kind in length.legend] == [("training", "line"), ("evaluation", "mark")]


def test_very_many_figures_of_a_plug_in_make_a_page_of_bounded_size(tmp_path: Path) -> None:
    figures = {f"metric-{number}": float(number) for number in range(500)}
    records = [{"elapsed_seconds": 1.0 * t, "raw_frames": 100 * t, "loss": 1.0, **figures} for t in range(1, 500)]
    path = write_report(recorded(tmp_path, *records))
    text = read(path).text
    assert ("metric-46, as the algorithm" in text, "metric-47, as the algorithm" in text) == (True, False)
    assert "453 more figures that the algorithm reports are in metrics.jsonl" in text
    assert path.stat().st_size < 500_000


def test_evaluations_are_marked_where_the_machine_was_theirs(tmp_path: Path) -> None:
    """One that took 3 s and ended at 10 s, on a run of 20 s: the band covers x from 7 to 10 of the charts over wall time."""
    points = [{"elapsed_seconds": float(t), "steps_per_second": 900.0, "mean_return": 1.0} for t in range(21)]
    judged = {"kind": "evaluation", "elapsed_seconds": 10.0, "seconds": 3.0, "mean": 2.0, "raw_frames": 5}
    run = read_run_folder(recorded(tmp_path, *points, judged))
    speed = run_charts(run.points, run.evaluations)[0]
    assert speed.legend[-1] == ("evaluation under way", 7, "band")
    (band,) = ElementTree.fromstring(speed.svg).iter(f"{SVG}rect")
    across = 640 - 56 - 14
    found = [float(band.attrib[name]) for name in ("x", "width")]
    assert found == pytest.approx([56 + across * 7 / 20, across * 3 / 20], abs=0.1)
    over_frames, over_time = ([kind for _, _, kind in chart.legend] for chart in learning_charts(run))
    assert ("band" in over_frames, over_time[-1]) == (False, "band")


def test_an_empty_folder_says_what_is_missing(tmp_path: Path) -> None:
    text = read(write_report(tmp_path)).text
    for said in (
        *(f"{name} is missing" for name in ("job.yaml", "outcome.json", "metrics.jsonl")),
        "No figures were recorded",
    ):
        assert said in text
    with pytest.raises(NotADirectoryError, match="not a run folder"):
        write_report(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "name",
    [
        "job.yaml", "job-effective.yaml", "outcome.json", "metrics.jsonl", "status.json", "roles/inference-0.final.json",
        "logs/actor-0.log",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "damage", [None, b"", b"[1, 2", b"\xff\xfe\x00", b"[]", b'"text"', b"{}", b'{"spec": 3, "metadata": []}']
)
def test_any_one_file_may_be_missing_or_damaged(run: Path, name: str, damage: bytes | None) -> None:
    (run / name).unlink()
    if damage is not None:
        (run / name).write_bytes(damage)
    read(write_report(run))


def test_nothing_from_the_folder_becomes_markup(tmp_path: Path) -> None:
    evil = "</title></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}"
    complete_run(tmp_path, evil)
    page = read(write_report(tmp_path))
    assert ("img" in page.tags, "49" in [text.strip() for text in page.words]) == (False, False)
    assert "pong" + evil in page.text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "kind", "state", "elapsed_seconds", "updates", "raw_frames", "mean", "standard_error", "episodes", "seconds",
    "mean_return", "replay/fill", "replay/items", "steps_per_second", "stage/learner/wait", "learner_wait_fraction",
    "machine", "versions", "device", "step", "digest",
]  # fmt: skip
lines = st.dictionaries(
    st.sampled_from(KEYS),
    json_values | st.sampled_from(["evaluation", "checkpoint", "machine", "learner", "Training"]),
    max_size=8,
)


@settings(max_examples=50)
@given(
    records=st.lists(lines, max_size=8),
    outcome=st.dictionaries(st.sampled_from(["state", "reason", "seconds", "started_unix"]), json_values),
)
def test_any_json_makes_a_page(tmp_path_factory: pytest.TempPathFactory, records: list[Any], outcome: Any) -> None:
    folder = recorded(tmp_path_factory.mktemp("run"), *records)
    (folder / "outcome.json").write_text(json.dumps(outcome))
    read(write_report(folder))


def test_lines_stand_where_their_numbers_are() -> None:
    chart = line_chart("Speed", [Series("a", [(0, 0), (5, 50), (10, 100)])], x_label="s", y_label="m")
    root = ElementTree.fromstring(chart.svg)
    (x0, y0), (x1, y1), (x2, y2) = (
        tuple(float(number) for number in step.split()) for step in root.find(f"{SVG}path").attrib["d"][1:].split("L")
    )
    assert (x1 - x0, y0 - y1) == pytest.approx((x2 - x1, y1 - y2))
    assert y2 < y0, "up is more"
    assert "highest 100" in root.attrib["aria-label"]


def test_a_gap_breaks_the_line_and_nothing_draws_nothing() -> None:
    gap = line_chart("x", [Series("a", [(0, 1), (1, math.nan), (2, 3), (3, 4)])], x_label="s", y_label="m")
    path = ElementTree.fromstring(gap.svg).find(f"{SVG}path")
    assert (path.attrib["d"].count("M"), path.attrib["d"].count("h0")) == (2, 1), "the point alone is a dot"
    nothing = line_chart("x", [Series("a", [(0, math.nan)])], x_label="s", y_label="m")
    assert (nothing.svg, stacked_bars("x", {"learner": {"wait": 0.0}}).svg) == ("", "")


def test_stacked_bars_are_in_proportion() -> None:
    root = ElementTree.fromstring(stacked_bars("t", {"learner": {"wait": 0.75, "update": 0.25}}).svg)
    wait, update = (float(rect.attrib["width"]) for rect in root.iter(f"{SVG}rect"))
    assert wait / update == pytest.approx(3, rel=0.02)


finite = st.floats(-1e12, 1e12)


@given(finite, finite, st.integers(2, 10))
def test_ticks_cover_their_range_with_few_round_steps(a: float, b: float, wanted: int) -> None:
    low, high = sorted((a, b))
    ticks = nice_ticks(low, high, wanted)
    span = max(high - low, 1e-6 * max(1.0, abs(low), abs(high)))
    assert ticks[0] - 1e-6 * span <= low <= high <= ticks[-1] + 1e-6 * span
    assert 2 <= len(ticks) <= 2 * wanted + 3
    assert ticks == sorted(set(ticks))


@given(st.lists(st.tuples(st.integers(0, 100), finite), min_size=1, max_size=2000))
def test_thinning_keeps_the_extremes(points: list[tuple[float, float]]) -> None:
    kept = thinned(points, 100)
    assert len(kept) <= max(100, 1)
    assert {min(y for _, y in points), max(y for _, y in points)} <= {y for _, y in kept}


def test_thinning_keeps_the_gaps() -> None:
    kept = thinned([(float(x), math.nan if 500 <= x < 600 or x == 50 else float(x)) for x in range(2000)], 100)
    finite_since = [math.isfinite(y) for _, y in kept]
    assert sum(before and not after for before, after in pairwise(finite_since)) == 2, "one at 50, one at 500"


RESUMED: list[dict[str, Any]] = [
    {"elapsed_seconds": 100.0, "time_unix": 5000.0, "mean_return": 300.0, "games": 20.0},
    {"elapsed_seconds": 110.0, "time_unix": 5010.0, "mean_return": 310.0, "games": 20.0},
    {"elapsed_seconds": 111.0, "time_unix": 9001.0, "mean_return": 12.0, "games": 2.0},
    {"elapsed_seconds": 112.0, "time_unix": 9002.0, "mean_return": 15.0, "games": 9.0},
]


def resumed(folder: Path, records: list[dict[str, Any]]) -> Path:
    (folder / "outcome.json").write_text(json.dumps({"state": "Complete", "seconds": 4.0, "started_unix": 9000.0}))
    return recorded(folder, *records)


def test_after_a_resume_the_return_is_of_enough_games_and_the_time_of_all_sessions(tmp_path: Path) -> None:
    run = read_run_folder(resumed(tmp_path, RESUMED))
    told = {label: (value, remark) for label, value, remark in tiles(run)}
    assert {name: told[name] for name in ("Training return", "Wall time")} == {
        "Training return": ("310.00", "mean of the last 20 games"),
        "Wall time": ("1 min 54 s", "4.0 s of it in the last session"),
    }
    assert "last started 1970-01-01 02:30:00 UTC" in read(write_report(tmp_path)).text
    for chart in learning_charts(run):
        assert "lowest 300, highest 310" in ElementTree.fromstring(chart.svg).attrib["aria-label"]


def test_a_run_of_one_session_and_few_games_is_told_as_it_is(tmp_path: Path) -> None:
    told = {label: (value, remark) for label, value, remark in tiles(read_run_folder(resumed(tmp_path, RESUMED[2:])))}
    assert (told["Training return"], told["Wall time"]) == (("15.00", "mean of the last 9 games"), ("4.0 s", ""))
    assert " · started 1970" in read(write_report(tmp_path)).text


def test_how_often_and_how_long_training_stood_still() -> None:
    states = ["Training", "Evaluating", "Evaluating", "Training", "Evaluating"]
    points = [{"state": state, "elapsed_seconds": 2.0 * index} for index, state in enumerate(states)]
    assert stood_still(points) == (2, 6.0)
    assert stood_still(points[:1]) == stood_still([{}, {"elapsed_seconds": 3.0}]) == (0, 0.0)


def test_means_are_weighted_with_time() -> None:
    points = [{"elapsed_seconds": 1.0, "x": 0.0}, {"elapsed_seconds": 4.0, "x": 1.0}]
    assert mean_figures(points)["x"] == pytest.approx(0.75)


def test_words_for_numbers() -> None:
    assert [compact(x) for x in (0, -2.5e-4, 0.034, 12.5, 1304, 25_000, 1_250_000, 3e9, -2e6, 1e308)] == [
        "0", "-2.5e-4", "0.034", "12.5", "1,304", "25 k", "1.25 M", "3 G", "-2 M", "1e308",
    ]  # fmt: skip
    assert [duration(x) for x in (4.21, 600, 245, 7260, None, -1)] == [
        "4.2 s", "10 min", "4 min 05 s", "2 h 01 min", "", "",
    ]  # fmt: skip
    assert [size(x) for x in (12, 2048, 3 * 2**30, None)] == ["12 B", "2.0 KiB", "3.0 GiB", ""]
    assert instant(1e300) == instant(None) == ""


def test_the_learners_gpu_is_named_and_drawn(tmp_path: Path) -> None:
    facts = {
        "device": "cuda",
        "device_name": "NVIDIA <H100>",
        "device_memory_bytes": 80 * 2**30,
        "driver": "580.159.04",
        "mirror": "on the GPU: it takes 18.9 GiB",
        "compute_seconds": {"cuda bf16": 0.00112, "cpu fp32": 0.25, "odd": "<b>"},
    }
    server = {"role": "inference", "name": "inference-0", "compute": "cpu fp32", "compute_seconds": {"cpu fp32": 0.002}}
    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "inference-0.final.json").write_text(json.dumps(server))
    (tmp_path / "roles" / "inference-0.process.json").write_text("{}")
    gpu = {"utilization": 0.5, "sm_activity": 0.4, "memory_used_bytes": 2**33, "memory_total_bytes": 80.0 * 2**30}
    with Recorder(tmp_path) as recorder:
        for i in range(1, 5):
            status = {"role": "learner", "state": "Training", "updates": i, "raw_frames_total": i, "gpu": gpu, **facts}
            recorder.record_status(status)
    page = write_report(tmp_path).read_text()
    for said in (
        "cuda (NVIDIA &lt;H100&gt;, 80",
        "driver 580.159.04)",
        "<th>Mirror of the replay</th><td>on the GPU: it takes 18.9 GiB</td>",
        "<th>An update took</th><td>cuda bf16 1.12 ms, cpu fp32 250.00 ms</td>",
        "<th>inference-0</th><td>acts on cpu fp32; a batch took cpu fp32 2.00 ms</td>",
        "Memory of the GPU",
    ):
        assert said in page
    assert re.search("The learner(&#39;|')s GPU", page)
    assert "Power of the GPU" not in page, "what was not measured is not drawn"

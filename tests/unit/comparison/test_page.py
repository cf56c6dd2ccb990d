"""The words, the document and the page of a comparison: whole, the same to the byte each time, and safe to open."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from rljob.comparison.comparison import Comparison, compare
from rljob.comparison.page import MOST_DRAWN, comparison_charts, document, lines, render_comparison
from rljob.telemetry.charts import Series, line_chart

from tests.support.judged_runs import judged_run
from tests.support.pages import Page

SVG = "{http://www.w3.org/2000/svg}"
RATE = "algorithm.learningRate"
EVIL = "<script>alert(1)</script>&amp;"


def two_groups(folder: Path, count: int = 3) -> Comparison:
    runs = []
    for rate, step in ((1e-3, 20.0), (3e-4, 12.0)):
        for seed in range(count):
            returns = [min(500.0, step * at + seed) for at in range(40)]
            runs.append(judged_run(folder / f"run-{rate}-{seed}", returns, seed=seed, overrides=[f"{RATE}={rate}"]))
    return compare(runs)


def test_what_a_terminal_is_told(tmp_path: Path) -> None:
    told = list(lines(two_groups(tmp_path)))
    assert told[0] == "CartPole-v1, verdicts of 100 games, target mean return of at least 475"
    assert told[2].split("   ")[:2] == ["group", "runs"]
    assert re.search(r"3 of 3 \(100 %\).*30 k", told[3])  # of 20 a record, judged at every tenth
    assert told[4].rstrip().endswith("not within budget   not within budget")
    assert any(line.startswith(f"A: {RATE} 0.001") for line in told)
    assert "A beats B with probability 1.00 (1.00 to 1.00)" in told
    assert any(line.startswith("note: Fewer than 8 runs were judged in A, B: with 3,") for line in told)


def test_the_document_is_strict_json_with_every_number(tmp_path: Path) -> None:
    found = json.loads(json.dumps(document(two_groups(tmp_path)), allow_nan=False))
    first, second = found["groups"]
    assert found["targets"] == [{"figure": "mean", "value": 475.0, "window_evaluations": 1}]
    assert (first["iqm"]["value"], first["solved_share"], first["median_raw_frames_to_target"]) == (
        500.0,
        1.0,
        30_000.0,
    )
    assert (second["solved"], second["median_seconds_to_target"], second["seconds_to_target"]) == (0, None, [None] * 3)
    assert [run["seed"] for run in second["runs"]] == [0, 1, 2]
    assert found["pairs"] == [{"better": "A", "than": "B", "probability": {"value": 1.0, "low": 1.0, "high": 1.0}}]


def test_without_a_target_nothing_is_solved_or_not(tmp_path: Path) -> None:
    none = ["successPolicy.targetReturn="]
    found = compare([judged_run(tmp_path / f"{at}", [9.0] * 20, seed=at, overrides=none) for at in range(2)])
    assert "solved" not in "\n".join(lines(found))
    assert document(found)["groups"][0]["solved"] is None
    page = Page(render_comparison(found)).text
    assert not {words for words in ("Solved", "Runs that have reached the target") if words in page}


def test_the_page_tells_everything_and_stands_alone(tmp_path: Path) -> None:
    page = Page(render_comparison(two_groups(tmp_path)))
    for words in (
        "A beats B with probability 1.00",
        "not within budget",
        "Training return over raw frames, interquartile mean of the runs",
        "Training return over wall time, interquartile mean of the runs",
        "Runs that have reached the target",
        "Runs with a verdict of at least",
        "Fewer than 8 runs",
        "run-0.0003-2",
    ):
        assert words in page.text


def test_the_same_runs_make_the_same_bytes(tmp_path: Path) -> None:
    comparison = two_groups(tmp_path)
    again = compare([run.path for group in comparison.groups for run in group.runs][::-1])
    for told in (render_comparison, document, lambda found: list(lines(found))):
        assert json.dumps(told(again)) == json.dumps(told(comparison))


def test_texts_of_a_folder_are_no_markup(tmp_path: Path) -> None:
    evil = [judged_run(tmp_path / f"{EVIL.replace('/', '')}-{at}", [9.0] * 20, seed=at) for at in range(2)]
    job = evil[0] / "job-effective.yaml"
    job.write_text(
        job.read_text().replace(
            "    inference: Local", f"    env: [{{name: A, value: '{EVIL}'}}]\n    inference: Local"
        )
    )
    assert EVIL in Page(render_comparison(compare(evil))).text


def test_curves_carry_the_last_return_of_a_run_that_has_ended_on(tmp_path: Path) -> None:
    """A run of 10 records that ends at 500, one of 30 that stays at 100: 300 is their mean to the end."""
    made = [judged_run(tmp_path / "short", [500.0] * 10), judged_run(tmp_path / "long", [100.0] * 30, seed=2)]
    label = ElementTree.fromstring(str(comparison_charts(compare(made))[0].svg)).get("aria-label") or ""
    assert "from 300 to 300 (lowest 300, highest 300)" in label


def test_a_band_is_drawn_around_its_line_and_within_the_drawing() -> None:
    points = [(float(at), float(at)) for at in range(5)]
    chart = line_chart(
        "t", [Series("s", points, around=[(y - 10, y + 20) for _, y in points])], x_label="x", y_label="y"
    )
    drawing = ElementTree.fromstring(str(chart.svg))
    (band,) = [path for path in drawing.iter(f"{SVG}path") if path.get("class") == "band f0"]
    corners = [tuple(map(float, corner.split())) for corner in str(band.get("d"))[1:-1].split("L")]
    upper, lower = corners[:5], corners[5:][::-1]
    assert [x for x, _ in upper] == [x for x, _ in lower]
    assert all(12 <= high < low <= 220 for (_, high), (_, low) in zip(upper, lower, strict=True))
    assert math.isclose(lower[0][1] - upper[0][1], lower[4][1] - upper[4][1], abs_tol=0.2)


@pytest.mark.parametrize("count", [1, MOST_DRAWN + 2])
def test_more_groups_than_colours_are_named(tmp_path: Path, count: int) -> None:
    made = [
        judged_run(tmp_path / f"{at}", [100.0 + at] * 10, seed=at % 2, overrides=[f"{RATE}={1e-4 * (1 + at // 2):.1e}"])
        for at in range(2 * count)
    ]
    text = Page(render_comparison(compare(made))).text
    assert ("2 groups with lower interquartile means are not drawn." in text) is (count > MOST_DRAWN)

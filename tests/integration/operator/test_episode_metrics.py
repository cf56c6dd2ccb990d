"""`rljob run` of an environment that says itself how well an episode went, from its `info` to the end of the job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.telemetry.recorder import read_records

from tests.support.local_run import LocalRun
from tests.support.paths import IMPORTABLE, ROOT

REPORTING = ROOT / "tests" / "support" / "reporting.yaml"
pytestmark = [pytest.mark.timeout(180), pytest.mark.long]


def test_what_the_environment_reports_completes_the_job_and_stands_in_its_report(
    local_run: Callable[..., LocalRun],
) -> None:
    run = local_run(job=REPORTING, environment=IMPORTABLE)
    assert run.finish(120) == 0, run.output + run.logs()
    outcome = json.loads((run.run_dir / "outcome.json").read_text())
    assert (outcome["state"], outcome["reason"]) == ("Complete", "MetricReached")
    assert outcome["message"].startswith("is_success 1, as the environment reports it, over 8 games in each of 2 eval")
    records = read_records(run.run_dir / "metrics.jsonl")
    judged = [record for record in records if record.get("kind") == "evaluation"]
    assert [(one["episode/is_success"], one["episode/distance"]) for one in judged[:2]] == [(1.0, 0.25)] * 2
    last = [record for record in records if "episode/is_success" in record and "kind" not in record][-1]
    assert last["episode/distance"] == 0.25
    # Four copies end their games together, and every fourth game of a copy is lost.
    played = int(last["episodes_total"]) // 4
    of_the_last_20 = [game % 4 != 3 for game in range(max(0, played - 5), played)]
    assert last["episode/is_success"] == pytest.approx(sum(of_the_last_20) / len(of_the_last_20))
    report = (run.run_dir / "report.html").read_text()
    assert "is_success, as the environment reports it" in report
    assert "distance, as the environment reports it" in report


def test_a_metric_that_never_comes_is_said(local_run: Callable[..., LocalRun]) -> None:
    sets = ("--set", "spec.successPolicy.metric.name=success", "--set", "spec.successPolicy.rawFrames=100000000")
    run = local_run(*sets, job=REPORTING, environment=IMPORTABLE)
    said = "successPolicy.metric waits for 'success', which the environment does not report at an episode's end: it reports "
    run.until(lambda: said in run.output, 60, "a warning of the run")
    assert said in Path(run.run_dir / "logs" / "evaluator.log").read_text()
    ready = run.job_status.condition("Ready")
    assert ready is not None
    assert ready.reason == "Degraded"
    assert f"{said}distance, " in ready.message
    run.until(lambda: "episode/distance 0.25" in run.output, 60, "a line of figures")
    assert run.interrupt() == 130

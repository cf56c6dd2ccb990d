"""Suspend, resume, scale, checkpoint, logs, get, top, why and stop beside a live `rljob run`, on one real run."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.api.document import parse_document
from rljob.api.status import RLJobStatus
from rljob.api.yaml_dialect import dump_document
from rljob.checkpoints.files import stored
from rljob.checkpoints.names import order
from rljob_operator.local.job_view import running_members

from tests.support import slow_game
from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import IMPORTABLE

pytestmark = pytest.mark.timeout(400)


def test_a_learner_that_the_network_reaches_takes_requests_of_its_own_job_only(
    local_run: Callable[..., LocalRun],
) -> None:
    run = local_run(*ENDLESS, environment={"RLJOB_METRICS_HOST": "0.0.0.0"})
    run.until_learning(50)
    url = run.announced("learner")["metrics_url"]
    request = urllib.request.Request(f"{url}/checkpoint", data=json.dumps({"sinceUnix": time.time()}).encode())
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=10)
    assert (run.run_dir / "roles" / "request-token").stat().st_mode & 0o777 == 0o600
    code, printed = run.verb("checkpoint", str(run.run_dir), "--wait")
    assert code == 0, printed
    assert "verified, file://" in printed


def test_a_run_is_suspended_and_goes_on_where_it_was(local_run: Callable[..., LocalRun]) -> None:
    fixed = ("--set", "spec.autoscaling.mode=Disabled", "--set", "spec.actors.replicas=1")
    run = local_run(*ENDLESS, *fixed, job=slow_game.JOB, environment=IMPORTABLE)
    folder = str(run.run_dir)
    run.until_learning(50)

    code, printed = run.verb("checkpoint", folder, "--wait")
    assert code == 0, printed
    assert "verified, file://" in printed

    code, printed = run.verb("suspend", folder, "--wait")
    assert code == 0, printed
    assert running_members(run.run_dir) == {}
    assert run.process.poll() is None, "rljob run stays"
    assert (run.job_status.state, run.reason("Suspended")) == ("Suspended", "UserRequested")
    checkpoint = run.job_status.checkpoint
    assert checkpoint is not None
    newest = stored(run.run_dir / "checkpoints")[0].name
    assert order(newest) == (1, checkpoint.step)
    assert checkpoint.step >= 50
    ledger = run.final("replay-0")
    active = run.job_status.active_seconds
    assert run.verb("checkpoint", folder)[0] == 2

    time.sleep(5.0)
    resumed = time.monotonic()
    code, printed = run.verb("resume", folder)
    assert code == 0, printed
    restored = run.until(
        lambda: run.status("replay-0").get("state") == "serving" and run.status("replay-0"), 60, "replay"
    )
    assert {name: restored[name] for name in ("items", "inserted_total", "sampled_total", "steps_total")} == {
        name: ledger[name] for name in ("items", "inserted_total", "sampled_total", "steps_total")
    }, "the same replay content"
    first = run.until(lambda: run.status("learner").get("updates"), 60, "the learner")
    assert first >= checkpoint.step
    assert f"resumed from {newest}" in (run.run_dir / "logs" / "learner.log").read_text()
    run.until(lambda: run.job_status.is_true("Ready"), 60, "Ready")
    run.until_learning(checkpoint.step + 30)
    since = run.job_status.active_seconds - active
    assert since <= time.monotonic() - resumed + 2, "time in suspension, five seconds and more, is not active"
    points = [json.loads(line) for line in (run.run_dir / "metrics.jsonl").read_text().splitlines()]
    curve = [point["raw_frames"] for point in points if "kind" not in point]
    assert curve == sorted(curve), "the curve goes on, it does not begin again"

    code, printed = run.verb("scale", folder, "2", "--wait")
    assert code == 0, printed
    assert run.job_status.actors.ready == 2
    code, printed = run.verb("scale", folder, "0")
    assert (code, "spec.actors.replicas" in printed) == (2, True)
    code, printed = run.verb("scale", folder, "1", "--wait")
    assert code == 0, printed
    assert len([name for name in running_members(run.run_dir) if name.startswith("actor")]) == 1

    assert_the_screens_tell_the_truth(run)
    assert_a_refused_edit_changes_nothing(run)

    code, printed = run.verb("stop", folder)
    assert code == 0, printed
    assert run.finish(10) == 130
    assert running_members(run.run_dir) == {}
    assert "Traceback" not in run.output


def assert_the_screens_tell_the_truth(run: LocalRun) -> None:
    folder = str(run.run_dir)
    code, printed = run.verb("get", folder)
    heading, row = printed.splitlines()
    columns = ["NAME", "STATE", "ACTORS", "DEPTH", "STEPS/S", "RETURN", "LAG", "PROGRESS", "DURATION", "AGE"]
    assert heading.split() == columns
    assert row.split()[:3] == ["slow-game", "Running", "1/1"]
    code, printed = run.verb("get", folder, "-o", "json")
    stored = json.loads(printed)
    assert stored["kind"] == "RLJob"
    assert RLJobStatus.model_validate(stored["status"]).state == "Running"
    code, printed = run.verb("top", folder, "--once")
    assert code == 0
    for word in ("queue depth", "starved", "blocked", "lag", "steps/s", "updates/s", "return", "actor-"):
        assert word in printed
    code, printed = run.verb("why", folder)
    assert "Last decision: " in printed
    code, printed = run.verb("logs", folder, "learner", "--tail", "3")
    assert (code, len(printed.splitlines())) == (0, 3)
    code, printed = run.verb("logs", folder, "lerner")
    assert (code, "there are: actor-0" in printed) == (2, True)
    code, printed = run.verb("get", str(Path(folder).parent))
    assert (code, "not a run folder" in printed) == (2, True)


def assert_a_refused_edit_changes_nothing(run: LocalRun) -> None:
    path = run.run_dir / "job.yaml"
    good = path.read_text()
    before = running_members(run.run_dir)
    document = parse_document(good.encode(), path.name)
    document["spec"]["actors"]["envsPerActor"] = "lots"
    path.write_text(dump_document(document))
    run.until(lambda: run.reason("Accepted") == "InvalidSpec", 60, "Accepted=False")
    assert "spec.actors.envsPerActor" in run.verb("why", str(run.run_dir))[1]
    code, printed = run.verb("scale", str(run.run_dir), "2")
    assert (code, "spec.actors.envsPerActor" in printed) == (2, True)
    path.write_text(good)
    run.until(lambda: run.reason("Accepted") == "Valid", 60, "Accepted again")
    assert running_members(run.run_dir) == before

"""Suspend, resume, scale, checkpoint, logs, get, top, why and stop beside a live `rljob run`, and changes of its manifest."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rljob.api import ManifestError
from rljob.api.document import dump_document, parse_document
from rljob.api.status import RLJobStatus
from rljob.checkpoints.files import stored
from rljob.checkpoints.names import order
from rljob_operator.local.job_view import running_members
from rljob_operator.local.spec_store import SpecStore

from tests.support import slow_game
from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import IMPORTABLE
from tests.support.waiting import known


def test_a_run_is_suspended_and_goes_on_where_it_was(local_run: Callable[..., LocalRun]) -> None:
    fixed = ("--set", "spec.autoscaling.mode=Disabled", "--set", "spec.actors.replicas=1")
    run = local_run(*ENDLESS, *fixed, job=slow_game.JOB, environment=IMPORTABLE | {"RLJOB_METRICS_HOST": "0.0.0.0"})
    folder = str(run.run_dir)
    run.until_learning(50)
    assert_a_learner_that_the_network_reaches_takes_requests_of_its_own_job_only(run)

    run.answer("checkpoint", folder, "--wait", said="verified, file://")

    run.answer("suspend", folder, "--wait")
    assert running_members(run.run_dir) == {}
    assert run.process.poll() is None, "rljob run stays"
    assert (run.job_status.state, run.reason("Suspended")) == ("Suspended", "UserRequested")
    checkpoint = known(run.job_status.checkpoint)
    newest = stored(run.run_dir / "checkpoints")[0].name
    assert order(newest) == (1, checkpoint.step)
    assert checkpoint.step >= 50
    ledger = run.final("replay-0")
    active = run.job_status.active_seconds
    assert run.verb("checkpoint", folder)[0] == 2

    time.sleep(3.0)
    resumed = time.monotonic()
    run.answer("resume", folder)
    restored = run.until(
        lambda: run.status("replay-0").get("state") == "serving" and run.status("replay-0"), 60, "replay"
    )
    assert {name: restored[name] for name in ("items", "inserted_total", "sampled_total", "steps_total")} == {
        name: ledger[name] for name in ("items", "inserted_total", "sampled_total", "steps_total")
    }, "the same replay content"
    assert run.until(lambda: run.status("learner").get("updates"), 60, "the learner") >= checkpoint.step
    assert f"resumed from {newest}" in (run.run_dir / "logs" / "learner.log").read_text()
    run.until(lambda: run.job_status.is_true("Ready"), 60, "Ready")
    run.until_learning(checkpoint.step + 30)
    since = run.job_status.active_seconds - active
    assert since <= time.monotonic() - resumed + 2, "time in suspension, three seconds and more, is not active"
    points = [json.loads(line) for line in (run.run_dir / "metrics.jsonl").read_text().splitlines()]
    curve = [point["raw_frames"] for point in points if "kind" not in point]
    assert curve == sorted(curve), "the curve goes on, it does not begin again"

    run.answer("scale", folder, "2", "--wait")
    assert run.job_status.actors.ready == 2
    run.answer("scale", folder, "0", code=2, said="spec.actors.replicas")
    run.answer("scale", folder, "1", "--wait")
    assert len([name for name in running_members(run.run_dir) if name.startswith("actor")]) == 1

    assert_the_screens_tell_the_truth(run)
    assert_a_refused_edit_changes_nothing(run)

    run.answer("stop", folder)
    assert run.finish(10) == 130
    assert running_members(run.run_dir) == {}
    assert "Traceback" not in run.output


def assert_a_learner_that_the_network_reaches_takes_requests_of_its_own_job_only(run: LocalRun) -> None:
    url = run.announced("learner")["metrics_url"]
    request = urllib.request.Request(f"{url}/checkpoint", data=json.dumps({"sinceUnix": time.time()}).encode())
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=10)
    assert (run.run_dir / "roles" / "request-token").stat().st_mode & 0o777 == 0o600


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
    printed = run.answer("top", folder, "--once")
    for word in ("queue depth", "starved", "blocked", "lag", "steps/s", "updates/s", "return", "actor-"):
        assert word in printed
    code, printed = run.verb("why", folder)
    assert "Last decision: " in printed
    code, printed = run.verb("logs", folder, "learner", "--tail", "3")
    assert (code, len(printed.splitlines())) == (0, 3)
    run.answer("logs", folder, "lerner", code=2, said="there are: actor-0")
    run.answer("get", str(Path(folder).parent), code=2, said="not a run folder")


def assert_a_refused_edit_changes_nothing(run: LocalRun) -> None:
    path = run.run_dir / "job.yaml"
    good = path.read_text()
    before = running_members(run.run_dir)
    document = parse_document(good.encode(), path.name)
    document["spec"]["actors"]["envsPerActor"] = "lots"
    path.write_text(dump_document(document))
    run.until(lambda: run.reason("Accepted") == "InvalidSpec", 60, "Accepted=False")
    assert "spec.actors.envsPerActor" in run.verb("why", str(run.run_dir))[1]
    run.answer("scale", str(run.run_dir), "2", code=2, said="spec.actors.envsPerActor")
    path.write_text(good)
    run.until(lambda: run.reason("Accepted") == "Valid", 60, "Accepted again")
    assert running_members(run.run_dir) == before


@pytest.mark.long
def test_what_is_changed_while_the_job_suspends_is_what_it_goes_on_with(local_run: Callable[..., LocalRun]) -> None:
    """Parameters, the number of environments, and who computes the actions: the suspension is called off at once."""
    run = local_run(*ENDLESS)
    run.until_learning(100)
    store = SpecStore(run.run_dir)
    with pytest.raises(ManifestError, match=r"spec\.algorithm\.optimizerEpsilon: .* only while the job is suspended"):
        store.edit(with_changes)
    before = running_members(run.run_dir)
    store.edit(lambda document: document["spec"].update(suspend=True))
    store.edit(with_changes)
    run.until(lambda: run.reason("Suspended") == "Draining", 30, "the suspension")
    store.edit(lambda document: document["spec"].update(suspend=False))
    run.until(lambda: run.job_status.state == "Running" and not set(before.values()) & pids(run), 120, "new processes")
    run.until_learning(run.status("learner")["updates"] + 50)

    newest = stored(run.run_dir / "checkpoints")[0]
    assert json.loads((newest / "manifest.json").read_text())["parameters"]["optimizer_epsilon"] != 1e-3, (
        "of the old one"
    )
    run.answer("checkpoint", str(run.run_dir), "--wait")
    newest = stored(run.run_dir / "checkpoints")[0]
    assert json.loads((newest / "manifest.json").read_text())["parameters"]["optimizer_epsilon"] == 1e-3
    served = run.status("learner")["inference"]
    assert served["observations_total"] > 0, served
    assert (run.job_status.restarts.counted, run.interrupt()) == (0, 130)


def with_changes(document: dict[str, Any]) -> None:
    document["spec"].setdefault("algorithm", {})["optimizerEpsilon"] = 1e-3
    document["spec"].setdefault("actors", {}).update(envsPerActor=4, inference="Central")


def pids(run: LocalRun) -> set[int]:
    return set(running_members(run.run_dir).values())


@pytest.mark.long
def test_a_run_of_which_nothing_is_left_may_be_changed_like_a_suspended_one(
    local_run: Callable[..., LocalRun],
) -> None:
    run = local_run(*ENDLESS)
    run.until_learning(50)
    assert run.interrupt() == 130
    again = local_run(
        "--resume", "--set", "spec.actors.envsPerActor=4", run_dir=run.run_dir, job=run.run_dir / "job.yaml"
    )
    again.until_learning(60)
    assert known(SpecStore(run.run_dir).accepted()).spec.actors.envs_per_actor == 4
    assert again.interrupt() == 130
    other = ["--set", "spec.environment.id=Acrobot-v1", "--set", "spec.successPolicy.rawFrames=1000000000"]
    never = local_run("--resume", *other, run_dir=run.run_dir, job=run.run_dir / "job.yaml")
    assert never.finish(60) == 2
    assert "spec.environment.id: got 'Acrobot-v1'; it cannot be changed; make a new job" in never.output

"""An experiment on this machine with real runs: a journal, a folder a run, and controllers that are killed or interrupted."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rljob
import yaml
from rljob_operator.experiments.journal import replayed
from rljob_operator.local.job_view import running_members

from tests.support.controllers import controller_pid
from tests.support.waiting import eventually

MANIFEST = """
apiVersion: rljob.dev/v1alpha1
kind: RLExperiment
metadata: {name: tiny}
spec:
  template:
    spec:
      environment: {id: CartPole-v1}
      algorithm:
        unrollLength: 16
        batchSize: 8
        epochs: 1
        minibatches: 1
        precision: FP32
        compile: false
        hiddenUnits: 16
      actors: {envsPerActor: 8}
      evaluator: {enabled: false, episodes: 2}
  search:
    list: [{algorithm.learningRate: 1e-3}, {algorithm.learningRate: 1e-4}, {algorithm.learningRate: 1e-5}]
  prune: {halving: {firstRawFrames: 2000}}
  budget: {rawFrames: 6000}
  parallelism: 3
"""
RATES = [1e-3, 1e-4, 1e-5, 1e-2]
pytestmark = pytest.mark.timeout(900)


def begun(manifest: Path, folder: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rljob_operator", "run", str(manifest), "--run-dir", str(folder), *options]
    with (folder.parent / "output.txt").open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)


def entries(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def controllers(folder: Path) -> list[int]:
    return [pid for run in folder.glob("tiny-*") if (pid := controller_pid(run))]


@pytest.mark.long
def test_killed_and_resumed_it_doubles_no_run_and_ends_with_a_verdict(tmp_path: Path) -> None:
    manifest, folder = tmp_path / "tiny.yaml", tmp_path / "tiny"
    manifest.write_text(MANIFEST)
    first = begun(manifest, folder)
    eventually(lambda: len(controllers(folder)) == 3, seconds=120)
    first.kill()
    first.wait()
    second = begun(folder / "experiment.yaml", folder, "--resume")
    try:
        eventually(lambda: any(each["kind"] == "Score" for each in entries(folder)), seconds=240)
        second.send_signal(signal.SIGINT)
        assert second.wait(180) == 130
        eventually(lambda: not controllers(folder), seconds=60)
        assert not any(running_members(run) for run in folder.glob("tiny-*"))
        third = begun(folder / "experiment.yaml", folder, "--resume", "--set", "parallelism=2")
        assert third.wait(400) == 0, (tmp_path / "output.txt").read_text()
    finally:
        if second.poll() is None:
            os.kill(second.pid, signal.SIGKILL)
    assert json.loads((folder / "outcome.json").read_text())["reason"] == "Completed"
    longer = [{"algorithm.learningRate": rate} for rate in RATES]
    fourth = begun(folder / "experiment.yaml", folder, "--resume", "--set", f"search.list={json.dumps(longer)}")
    assert fourth.wait(400) == 0, (tmp_path / "output.txt").read_text()
    found = entries(folder)
    assert [each["kind"] for each in found].count("Settings") == 3
    assert [each["kind"] for each in found].count("End") == 2, "it has gone on after its end"
    assert sorted(each["trial"] for each in found if each["kind"] == "Start") == [0, 1, 2, 3]
    promoted = [each["trial"] for each in found if each["kind"] == "Promote"]
    assert promoted in ([promoted[0]], [promoted[0], 3]), "one of three, and the newest if it is best"
    replayed((folder / "journal.jsonl").read_bytes().splitlines(keepends=True))
    outcome = json.loads((folder / "outcome.json").read_text())
    assert (outcome["state"], outcome["reason"]) == ("Complete", "Completed")
    assert outcome["best"]["mean"] == next(each for each in reversed(found) if each["kind"] == "Verdict")["mean"]
    assert "standardError" in outcome["best"]
    assert outcome["best"]["set"] == {"algorithm.learningRate": RATES[outcome["best"]["trial"]]}
    assert len(outcome["trials"]) == 4
    assert "The best, judged anew" in (folder / "report.html").read_text()
    sweep = rljob.attach(folder)
    assert (sweep.status.state, sweep.best.mean) == ("Completed", outcome["best"]["mean"])
    assert sweep.best.runs[0] == folder / f"tiny-{outcome['best']['trial']}"
    assert rljob.attach(sweep.best.runs[0]).policy().environment_id == "CartPole-v1"
    # After the most raw frames at which two were judged: 6,000, or the 2,000 at which all were.
    assert len(rljob.compare([sweep]).groups) == (4 if len(promoted) == 1 else 2)


@pytest.mark.long
def test_a_populations_members_take_weights_also_of_a_controller_that_was_killed_and_in_a_folder_that_was_deleted(
    tmp_path: Path,
) -> None:
    whole = yaml.safe_load(MANIFEST)
    spec = whole["spec"]
    del spec["search"], spec["prune"]
    rates = {"algorithm.learningRate": {"logUniform": {"min": 1e-6, "max": 1e-2}}}
    spec["population"] = {
        "size": 3,
        "readyRawFrames": 4000,
        "parameters": rates,
        "exploit": {"minGapStandardErrors": 0},
    }
    spec["budget"] = {"rawFrames": 60_000}
    manifest, folder = tmp_path / "tiny.yaml", tmp_path / "tiny"
    manifest.write_text(yaml.safe_dump(whole))
    first, journal = begun(manifest, folder), folder / "journal.jsonl"
    copies = lambda: [e for e in entries(folder) if e["kind"] == "Copy"] if journal.exists() else []  # noqa: E731
    try:
        eventually(copies, seconds=240)
    finally:
        first.kill()
        first.wait()
    again = begun(folder / "experiment.yaml", folder, "--resume")
    member = folder / f"tiny-{eventually(lambda: copies()[1:], seconds=240)[-1]['trial']}"
    while (member / "job.yaml").exists():
        shutil.rmtree(member, ignore_errors=True)
    assert again.wait(600) == 0, (tmp_path / "output.txt").read_text()
    found = entries(folder)
    assert [each for each in found if each["kind"] == "Fail"] == []
    replayed(journal.read_bytes().splitlines(keepends=True))
    refused = {each["id"] for each in found if each["kind"] == "Refused"}
    last = {each["trial"]: each["fork"] for each in found if each["kind"] == "Copy"}
    for trial, fork in last.items():
        status = json.loads((folder / f"tiny-{trial}" / "status.json").read_text())["fork"]
        assert (status["id"], status["state"]) == (fork["id"], "Done") or fork["id"] in refused
    assert last
    best = json.loads((folder / "outcome.json").read_text())["best"]
    assert best["schedule"][-1]["set"] == best["set"]
    assert "copies trial" in (folder / "report.html").read_text()


@pytest.mark.long
def test_from_python_it_outlives_the_program_and_is_stopped_in_good_order(tmp_path: Path) -> None:
    manifest, folder = tmp_path / "tiny.yaml", tmp_path / "tiny"
    manifest.write_text(MANIFEST)
    start = (
        f"import rljob; print(rljob.run({str(manifest)!r}, folder={str(folder)!r}, set={{'seeds': 2}}).status.state)"
    )
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "Starting"), done.stderr
    sweep = rljob.attach(folder)
    eventually(lambda: len(controllers(folder)) == 3, seconds=120)
    assert sweep.status == ("Running", "0 of 3 trials judged")
    sweep.stop()
    assert sweep.status.state == "SessionEnded"
    assert not controllers(folder)
    assert not any(running_members(run) for run in folder.glob("tiny-*"))
    assert "resume: rljob run" in (folder / "logs" / "controller.log").read_text()

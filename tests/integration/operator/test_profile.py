"""`rljob profile` beside a live `rljob run`: what it writes of all roles, the way of a segment, and what it refuses."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(400)


def ways(trace: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """The arrows, each with the slice that it begins or ends in."""
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    found: dict[int, list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] in "stf":
            around = [
                each["name"]
                for each in slices
                if each["tid"] == event["tid"] and each["ts"] <= event["ts"] <= each["ts"] + each["dur"]
            ]
            found.setdefault(event["id"], []).append({**event, "slices": around})
    return found


@pytest.mark.parametrize(("example", "takers"), [("cartpole-apex", {"ingest"}), ("cartpole-impala", {"take in"})])
def test_all_roles_and_the_way_of_a_segment(local_run: Callable[..., LocalRun], example: str, takers: set[str]) -> None:
    run = local_run(*ENDLESS, job=EXAMPLES / f"{example}.yaml")
    run.until_learning(50)
    code, printed = run.verb("profile", str(run.run_dir), "--seconds", "3", "--torch")
    assert code == 0, printed
    (folder,) = (run.run_dir / "profiles").iterdir()
    members = {"learner", *(name for name in ("actor-0", "replay-0") if run.announced(name))}
    for name in members:
        assert re.search(rf"{name}: .*of a core: .*MainThread [0-9]", printed), printed
        assert "MainThread;" in (folder / f"{name}.folded").read_text()
    assert "run (rljob/learner/loop.py)" in (folder / "learner.folded").read_text()
    for name in ("learner", "actor-0"):
        trace = json.loads(gzip.decompress((folder / f"{name}.torch.json.gz").read_bytes()))
        assert len(trace["traceEvents"]) > 100
        assert "aten::" in (folder / f"{name}.operations.txt").read_text()
    assert (folder / "profile.html").read_text().count("<svg") >= len(members)
    trace = json.loads((folder / "timeline.json").read_text())
    whole = [way for way in ways(trace).values() if {step["ph"] for step in way} == {"s", "t", "f"}]
    assert whole, "a segment was seen from the actor to the update"
    steps = whole[len(whole) // 2]
    assert steps[0]["pid"] != steps[-1]["pid"]
    assert any(takers & set(step["slices"]) for step in steps[1:-1])
    assert "update" in steps[-1]["slices"]
    assert run.interrupt() == 130
    assert "profile.html" in (run.run_dir / "report.html").read_text()
    code, printed = run.verb("profile", str(run.run_dir))
    assert (code, "nothing of it runs" in printed) == (2, True), printed


def test_what_can_not_be_profiled_is_said(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    run = local_run(*ENDLESS)
    run.until_learning(20)
    folder = str(run.run_dir)
    for words, said in (
        (("actor-7",), "no actor-7 to profile; there are: learner, actor-0"),
        (("learner", "--seconds", "0"), "Invalid value for '--seconds'"),
        (("learner", "--seconds", "-3"), "Invalid value for '--seconds'"),
        (("learner", "-o", "/proc/here"), "/proc/here: can't be made and filled"),
        (("learner", "-o", str(tmp_path)), "File exists; name a new folder with -o"),
    ):
        code, printed = run.verb("profile", folder, *words)
        assert (code, said in printed) == (2, True), printed
    assert not (run.run_dir / "profiles").exists()

    # A role that ends meanwhile, and is started anew elsewhere: what was sampled of this life is kept.
    words = [sys.executable, "-m", "rljob_operator", "profile", folder, "actor", "--seconds", "40", "-o"]
    with subprocess.Popen([*words, str(tmp_path / "cut")], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as asking:
        eventually(lambda: (tmp_path / "cut").exists(), "it has begun")
        time.sleep(3)
        run.kill("actor-0")
        out, err = asking.communicate(timeout=60)
    assert asking.returncode == 0, err
    assert b"it has ended, or can't be asked any more" in out
    assert "MainThread" in (tmp_path / "cut" / "actor-0.folded").read_text()

    # Ctrl-C ends the profile and not the run.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heard}; from rljob_operator.__main__ import main; main()"
    words = ["-c", program, "profile", folder, "learner", "--seconds", "60", "-o", str(tmp_path / "early")]
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as asking:
        eventually(lambda: (tmp_path / "early").exists(), "it has begun")
        time.sleep(3)
        os.kill(asking.pid, signal.SIGINT)
        out, err = asking.communicate(timeout=60)
    assert (asking.returncode, b"ended early" in err) == (0, True), err
    assert "rljob/learner/loop.py" in (tmp_path / "early" / "learner.folded").read_text()
    assert run.interrupt() == 130

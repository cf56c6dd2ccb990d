"""`rljob profile` beside a live `rljob run`: what it writes of all roles, the way of a segment, and what it refuses."""

import json
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES
from tests.support.waiting import eventually

HEARD = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
PROGRAM = f"{HEARD}; from rljob_operator.__main__ import main; main()"
"""The command in a process that Ctrl-C reaches, as one does not that was started in the background, like these tests maybe."""


def profiled(run: LocalRun, *options: str) -> tuple[Path, str]:
    """The folder that a profile of three seconds makes, and what is printed."""
    printed = run.answer("profile", str(run.run_dir), "--seconds", "3", *options)
    (folder,) = (run.run_dir / "profiles").iterdir()
    return folder, printed


def sampled(folder: Path) -> set[str]:
    """The functions on the time line, which name their files; stages name none."""
    events = json.loads((folder / "timeline.json").read_text())["traceEvents"]
    return {event["name"] for event in events if event["ph"] == "X" and event["name"].endswith(".py)")}


def assert_a_segment_is_followed(folder: Path, takers: set[str]) -> None:
    """Its arrows lead from the actor through a slice of one of ``takers`` to the learner's update."""
    events = json.loads((folder / "timeline.json").read_text())["traceEvents"]
    ways: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            ways[event["id"]].append(event)
    whole = [way for way in ways.values() if {step["ph"] for step in way} == {"s", "t", "f"}]
    assert whole, "a segment was seen from the actor to the update"
    first, *between, last = whole[len(whole) // 2]

    def slices(step: dict[str, Any]) -> set[str]:
        """The names of what its thread does at that moment."""
        here = (event for event in events if event["ph"] == "X" and event["tid"] == step["tid"])
        return {event["name"] for event in here if event["ts"] <= step["ts"] <= event["ts"] + event["dur"]}

    assert first["pid"] != last["pid"]
    assert any(takers & slices(step) for step in between)
    assert "update" in slices(last)


def test_all_roles_are_profiled_and_a_segment_is_followed_from_its_actor_to_the_update(
    local_run: Callable[..., LocalRun], tmp_path: Path
) -> None:
    run = local_run(*ENDLESS)
    run.until_learning(50)
    folder, printed = profiled(run)
    for name in ("learner", "actor-0", "replay-0"):
        assert re.search(rf"{name}: .*of a core: .*MainThread [0-9]", printed), printed
    assert "run (rljob/learner/loop.py)" in sampled(folder)
    assert_a_segment_is_followed(folder, {"ingest"})

    for words, said in (
        (("actor-7",), "no actor-7 to profile; there are: learner, actor-0"),
        (("learner", "--seconds", "0"), "Invalid value for '--seconds'"),
    ):
        run.answer("profile", str(run.run_dir), *words, code=2, said=said)
    run.answer("profile", str(run.run_dir), "learner", "-o", str(tmp_path), code=1, said=f"File exists: '{tmp_path}'")
    assert list((run.run_dir / "profiles").iterdir()) == [folder]
    assert_what_was_sampled_is_kept(run, tmp_path)
    assert run.interrupt() == 130
    assert "timeline.json" in (run.run_dir / "report.html").read_text()
    run.answer("profile", str(run.run_dir), code=2, said="nothing runs")


def assert_what_was_sampled_is_kept(run: LocalRun, folder: Path) -> None:
    """Of a role that ends meanwhile and is started again elsewhere, and of a profile that Ctrl-C ends, and not the run."""
    asking = []
    for who in ("actor", "learner"):
        words = ["-c", PROGRAM, "profile", str(run.run_dir), who, "--seconds", "60", "-o", str(folder / who)]
        asking.append(subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE))
    eventually(lambda: all((folder / who).exists() for who in ("actor", "learner")), "both have begun")
    time.sleep(3)  # until they have some samples
    run.kill("actor-0")
    asking[1].send_signal(signal.SIGINT)
    (of_actor, actor_error), (_, learner_error) = (each.communicate(timeout=90) for each in asking)
    assert asking[0].returncode == 0, actor_error
    assert b"it has ended or no longer answers" in of_actor
    assert sampled(folder / "actor")
    assert (asking[1].returncode, b"ended early" in learner_error) == (0, True), learner_error
    assert "run (rljob/learner/loop.py)" in sampled(folder / "learner")


def test_a_job_of_unrolls_runs_without_a_replay_service_and_its_segments_are_followed(
    local_run: Callable[..., LocalRun],
) -> None:
    run = local_run(*ENDLESS, job=EXAMPLES / "cartpole-impala.yaml")
    run.until_learning(30)
    status = run.until(lambda: (s := run.status("learner")).get("entropy") is not None and s, 60, "a window of figures")
    assert "replay" not in status
    assert status["queue"]["learned"] > 0
    assert_a_segment_is_followed(profiled(run)[0], {"take in"})
    assert run.interrupt() == 130
    assert {path.stem for path in (run.run_dir / "logs").iterdir() if path.stat().st_size} >= {"learner", "actor-0"}
    assert not (run.run_dir / "logs" / "replay-0.log").exists()
    assert "Unrolls a second" in (run.run_dir / "report.html").read_text()
    records = [json.loads(line) for line in (run.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert any("entropy" in record and "queue/learned" in record for record in records)

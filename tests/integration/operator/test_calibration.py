"""A calibration: a real job for some seconds, the numbers of its real parts, and who else takes this machine's cores."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from rljob.api.load import read_manifest
from rljob.errors import UsageError
from rljob.telemetry.sizing import parts
from rljob.threads import usable_cores
from rljob_operator.local import other_load
from rljob_operator.local.calibration import calibrate
from rljob_operator.local.other_load import OtherLoad, taken_by_others

from tests.support import slow_game
from tests.support.paths import EXAMPLES
from tests.support.waiting import eventually


@pytest.mark.long
def test_a_replay_job_is_measured_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = {process.pid for process in psutil.process_iter()}
    said: list[str] = []
    measured, _ = calibrate(read_manifest(EXAMPLES / "cartpole-apex.yaml"), 60.0, said.append)
    assert said == ["calibrating for up to 60 s: the job trains here with one actor", "and its evaluator plays"]
    assert measured["updates_per_step"] == pytest.approx(8 / 128)
    assert 0 < measured["env_seconds"] + measured["acting_seconds"] < measured["actor_seconds"]
    assert 0 < measured["update_seconds"] * measured["updates_per_step"] < measured["learner_seconds"]
    # A chunk of 20 steps has an observation of four floats a step and more beside it.
    assert 16 < measured["stored_bytes"] < 200
    assert 16 < measured["step_bytes"] < 200
    assert 16 * 20 / 20 < measured["mirror_bytes"] < 200
    assert measured["stored_transitions"] > 0
    assert measured["weights_bytes_per_update"] > 0
    for memory in (measured["actor_memory_bytes"], measured["learner_memory_bytes"], measured["replay_memory_bytes"]):
        assert memory > 50 << 20
    assert measured["redis_memory_bytes"] > 1 << 20
    assert 5 << 20 < measured["redis_probe_memory_bytes"] < measured["redis_start_memory_bytes"] < 100 << 20
    assert 0 < measured["judging_seconds"] < 0.1
    assert measured["evaluator_memory_bytes"] > 50 << 20
    assert list(tmp_path.glob("rljob-size-*")) == []
    left = [process for process in psutil.process_iter(["cmdline"]) if process.pid not in before]
    assert not [process for process in left if "rljob-size-" in " ".join(process.info["cmdline"] or [])]


@pytest.mark.long
def test_sleeping_environments_need_an_actor_each_and_hardly_a_core() -> None:
    """40 ms a step, asleep: the learner takes many times as much as one actor gives."""
    written = read_manifest(slow_game.JOB, ["spec.environment.kwargs={step_seconds: 0.04}"])
    measured, _ = calibrate(written, 60.0, lambda _: None)
    assert measured["actor_seconds"] == pytest.approx(0.04, rel=0.3)
    assert measured["actor_cores"] < 0.5
    assert parts(measured).knee() > 3


@pytest.mark.parametrize(
    ("change", "seconds", "said"),
    [
        ("kwargs={step_seconds: 1}", 11.0, "after 1 s the job had not learned for 10 s"),
        ("id=tests.support.slow_game:nothing", 60.0, "the job ended while it was calibrated: .*slow_game:nothing"),
    ],
    ids=["does not learn in time", "fails"],
)
def test_a_job_that_can_not_be_calibrated_says_why(change: str, seconds: float, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        calibrate(read_manifest(slow_game.JOB, [f"spec.environment.{change}"]), seconds, lambda _: None)


@pytest.mark.long
def test_an_inference_server_of_its_own_is_measured() -> None:
    """Three are asked for; one actor asks one of them, and what it does there is not its own work."""
    central = ["spec.actors.inference=Central", "spec.inference.replicas=3", "spec.evaluator.enabled=false"]
    measured, _ = calibrate(read_manifest(EXAMPLES / "cartpole-apex.yaml", central), 60.0, lambda _: None)
    assert 0 < measured["inference_seconds"] < 0.01
    assert measured["inference_cores"] > 0
    assert measured["inference_memory_bytes"] > 50 << 20
    assert (measured["judging_seconds"], measured["evaluator_memory_bytes"]) == (0, 0)


BUSY = "import time; end = time.monotonic() + 20\nwhile time.monotonic() < end: pass"


@pytest.mark.parametrize(
    ("busy", "own", "said"),
    [(2.0, 1.0, "take 1.0 of this machine's 2 cores"), (1.6, 0.6, ""), (2.0, 1.8, ""), (2.0, 2.1, "")],
)
def test_what_is_much(busy: float, own: float, said: str) -> None:
    assert said in taken_by_others(2, busy, own)
    assert bool(said) == bool(taken_by_others(2, busy, own))


def test_what_runs_below_this_process_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [0.0]
    monkeypatch.setattr(other_load, "taken_by_others", lambda cores, busy, own: seen.append(own) or "")
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    process = psutil.Popen([sys.executable, "-c", code])
    load = OtherLoad(0.5)
    try:
        eventually(lambda: load.words() or seen[-1] > 0.2, "its child takes a core")
    finally:
        for each in (*process.children(), process):
            each.kill()
        process.wait()


@pytest.mark.skipif(usable_cores() < (psutil.cpu_count() or 1), reason="a part of a machine can't be kept busy")
def test_other_programs_are_told_of() -> None:
    # Begun by a shell that has ended: below nothing of ours.
    script = " ".join('"$@" >/dev/null & echo $!;' for _ in range(psutil.cpu_count() or 1))
    command = ["sh", "-c", script, "sh", sys.executable, "-c", BUSY]
    shell = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    others = [psutil.Process(int(pid)) for pid in shell.stdout.split()]
    try:
        assert "other programs take" in eventually(OtherLoad(0.5).words, "a word")
    finally:
        for process in others:
            process.kill()

"""A calibration: a real job for some seconds, the numbers of its real parts."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from rljob.api.load import read_manifest
from rljob.errors import UsageError
from rljob.telemetry.sizing import parts
from rljob_operator.local.calibration import calibrate

from tests.support import slow_game
from tests.support.paths import EXAMPLES

pytestmark = pytest.mark.timeout(240)


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


def test_a_job_that_does_not_learn_in_time_is_said() -> None:
    written = read_manifest(slow_game.JOB, ["spec.environment.kwargs={step_seconds: 1}"])
    with pytest.raises(UsageError, match="after 10 s the job had not learned for 10 s"):
        calibrate(written, 20.0, lambda _: None)


def test_a_job_that_fails_says_so() -> None:
    written = read_manifest(slow_game.JOB, ["spec.environment.id=tests.support.slow_game:nothing"])
    with pytest.raises(UsageError, match=r"the job ended while it was calibrated: .*slow_game:nothing"):
        calibrate(written, 60.0, lambda _: None)


@pytest.mark.long
def test_an_inference_server_of_its_own_is_measured() -> None:
    """Three are asked for; one actor asks one of them, and what it does there is not its own work."""
    central = ["spec.actors.inference=Central", "spec.inference.replicas=3", "spec.evaluator.enabled=false"]
    measured, _ = calibrate(read_manifest(EXAMPLES / "cartpole-apex.yaml", central), 60.0, lambda _: None)
    assert 0 < measured["inference_seconds"] < 0.01
    assert measured["inference_cores"] > 0
    assert measured["inference_memory_bytes"] > 50 << 20
    assert (measured["judging_seconds"], measured["evaluator_memory_bytes"]) == (0, 0)

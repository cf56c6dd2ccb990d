"""``rljob size`` with numbers that are given: what it prints and writes, and what it refuses. The calibration itself is in
``tests/integration/operator/test_calibration.py``."""

import json
from pathlib import Path
from typing import Any

import pytest
from rljob.api import load_manifest

from tests.support.command_line import invoke, printed, refused
from tests.support.paths import EXAMPLES
from tests.unit.telemetry.test_sizing import PONG

JOB = EXAMPLES / "pong-apex.yaml"
EMPTY = {name: 0 for name in PONG if name.startswith(("replay_", "redis_", "stored_", "mirror_"))}
"""Numbers of a job without replay."""


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    return saved(tmp_path, {"calibration": PONG, "busy": ""})


def saved(folder: Path, document: Any) -> Path:
    path = folder / "numbers.json"
    path.write_text(json.dumps(document))
    return path


def test_it_says_what_is_needed_and_where_the_knee_is(numbers: Path) -> None:
    said = printed("size", JOB, "--calibration", numbers)
    for words in (
        "The knee is at 4.00 actors",
        "<- feeds the learner",
        "Mbit/s of experience in (130 bytes a step)",
        "replay.redis",
    ):
        assert words in said


def test_json_is_read_again_after_an_edit(numbers: Path, tmp_path: Path) -> None:
    first = json.loads(printed("size", JOB, "--calibration", numbers, "--json"))
    first["calibration"]["learner_seconds"] = 1e-4
    faster = json.loads(printed("size", JOB, "--calibration", saved(tmp_path, first), "--json"))
    assert [found["sizing"]["actors"] for found in (first, faster)] == [4, 10]


def test_a_copy_is_written_with_requests(numbers: Path, tmp_path: Path) -> None:
    out = tmp_path / "sized.yaml"
    printed("size", JOB, "--calibration", numbers, "--write", out)
    sized, before = load_manifest(out).spec, load_manifest(JOB).spec
    assert sized.actors.resources.requests == {"cpu": "900m", "memory": "300Mi"}
    assert sized.required_replay.redis.resources.requests.keys() >= {"memory"}
    assert sized.algorithm == before.algorithm


def test_numbers_of_a_job_with_a_replay_are_none_of_one_without(numbers: Path, tmp_path: Path) -> None:
    without = tmp_path / "without.json"
    without.write_text(json.dumps({"calibration": {**PONG, **EMPTY}, "busy": ""}))
    unrolls = EXAMPLES / "pong-vtrace.yaml"
    for job, file, told in ((JOB, without, "of a job without replay"), (unrolls, numbers, "of a job with replay")):
        assert told in refused("size", job, "--calibration", file)
    printed("size", unrolls, "--calibration", without)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--write", "{folder}/none/out.yaml"], "can't be written"),
        (
            ["--set", "spec.learner.resources.limits.memory=1Mi", "--write", "{folder}/out.yaml"],
            "spec.learner.resources.limits.memory: got 1Mi; allowed: at least",
        ),
    ],
)
def test_what_is_wrong_is_said(words: list[str], told: str, numbers: Path, tmp_path: Path) -> None:
    result = invoke("size", JOB, "--calibration", numbers, *(word.format(folder=tmp_path) for word in words))
    assert (result.exit_code, told in result.stderr) == (2, True), result.output
    assert not (tmp_path / "out.yaml").exists()


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([], "is not what `rljob size --json` printed"),
        ({}, "calibration is missing"),
        ({"calibration": {}, "busy": ""}, "cores is missing"),
        (
            {"calibration": {**PONG, "env_seconds": None}, "busy": ""},
            "env_seconds (the environment's part of that): got None",
        ),
        ({"calibration": {**PONG, "learner_seconds": 0}, "busy": ""}, "got 0; allowed: a number from 1e-12"),
        ({"calibration": {**PONG, "step_bytes": -1}, "busy": ""}, "got -1; allowed: a number from 0"),
        ({"calibration": {**PONG, "overlap": 0.5}, "busy": ""}, "got 0.5; allowed: a number from 1"),
        ({"calibration": {**PONG, "cores": float("nan")}, "busy": ""}, "got nan"),
        ({"calibration": PONG}, "busy is missing"),
    ],
)
def test_a_file_that_is_none_of_a_calibration(document: Any, told: str, tmp_path: Path) -> None:
    assert told in refused("size", JOB, "--calibration", saved(tmp_path, document))
    assert refused("size", JOB, "--calibration", tmp_path / "none.json")


def test_numbers_of_a_busy_machine_are_shown_not_believed(tmp_path: Path) -> None:
    busy = saved(tmp_path, {"calibration": PONG, "busy": "other programs take 1.5 of this machine's 2 cores"})
    result = invoke("size", JOB, "--calibration", busy, "--write", tmp_path / "out.yaml")
    assert (result.exit_code, "The knee" in result.stdout) == (2, True)
    assert "not to be believed: other programs take 1.5" in result.stderr
    assert not (tmp_path / "out.yaml").exists()
    printed("size", JOB, "--calibration", busy)


def test_an_experiment_is_several_jobs() -> None:
    assert "give the manifest of one RLJob" in refused("size", EXAMPLES / "experiments" / "cartpole-search.yaml")

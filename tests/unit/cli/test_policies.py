"""``rljob eval`` and ``rljob play`` on a real checkpoint: untrained policies, written as the learner writes its own.

``rljob size`` with numbers that are given: what it prints and writes, and what it refuses. The calibration itself is in
``tests/integration/operator/test_calibration.py``.
"""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import pytest
from rljob.api import load_manifest
from rljob.checkpoints import store as checkpoint

from tests.support.command_line import invoke, printed, refused
from tests.support.paths import EXAMPLES
from tests.support.untrained import untrained
from tests.unit.telemetry.test_sizing import PONG


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("run"), "cartpole-apex.yaml")


def test_eval_of_a_run_and_of_a_checkpoint_agree(run: Path) -> None:
    arguments = ("--episodes", 3, "--seed", 5, "--json")
    of_run = printed("eval", run, *arguments)
    assert of_run == printed("eval", next((run / "checkpoints").iterdir()), *arguments)
    figures = json.loads(of_run)
    returns = figures["returns"]
    assert figures["episodes"] == len(returns) == 3
    expected = (np.mean(returns), np.std(returns, ddof=1) / np.sqrt(3))
    assert (figures["mean"], figures["standard_error"]) == pytest.approx(expected)
    assert returns == figures["lengths_steps"], "CartPole pays 1 a step"


def test_eval_plays_where_the_run_judges(tmp_path: Path) -> None:
    limit = "spec.evaluator.environment={id: 'tests.support.reporting:CartPole', maxEpisodeSteps: 5}"
    figures = json.loads(printed("eval", untrained(tmp_path, "cartpole-apex.yaml", limit), "--episodes", 3, "--json"))
    found = [figures[name] for name in ("environment", "lengths_steps", "metrics")]
    assert found == ["tests.support.reporting:CartPole", [5, 5, 5], {"upright": 1.0}]


def test_eval_in_words_and_of_a_single_game(run: Path) -> None:
    said = printed("eval", run, "--episodes", 2, "--epsilon", 1)
    assert re.search(r"(?s)CartPole-v1: mean return.*\(standard error\) over 2 episodes", said)
    assert json.loads(printed("eval", run, "--episodes", 1, "--json"))["standard_error"] is None


def test_a_summary_fits_into_a_pods_last_words(run: Path) -> None:
    """A termination message has at most 4,096 bytes."""
    whole, short = (printed("eval", run, "--episodes", 3, "--json", *more) for more in ((), ("--summary",)))
    figures = json.loads(short)
    assert not figures.keys() & {"returns", "metrics", "lengths_steps"}
    assert figures.items() <= json.loads(whole).items()
    assert len(short) < 500


def test_a_damaged_checkpoint_is_one_line(run: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(next((run / "checkpoints").iterdir()), tmp_path / "step-1")
    content = bytearray((damaged / checkpoint.TENSORS).read_bytes())
    content[-1] ^= 1
    (damaged / checkpoint.TENSORS).write_bytes(content)
    assert refused("eval", damaged).count("\n") == 1


def test_play_writes_the_screen_of_the_game(tmp_path: Path) -> None:
    """400 raw frames of Pong are 100 steps; the screen of 210x160 is doubled."""
    run = untrained(tmp_path, "pong-apex.yaml", "spec.environment.maxEpisodeRawFrames=400")
    video = tmp_path / "game.mp4"
    assert f"{video}: return " in printed("play", run, "--video", video)
    with imageio.get_reader(video) as reader:
        assert 90 <= reader.count_frames() <= 101
        assert reader.get_data(0).shape == (420, 320, 3)


@pytest.mark.parametrize("missing", ["imageio", "imageio_ffmpeg"])
def test_play_without_the_video_extra_says_what_to_install(
    run: Path, tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    said = refused("play", run, "--video", tmp_path / "game.mp4")
    assert [words for words in (f"{missing} not installed", "pip install 'rljob[video]'") if words not in said] == []
    assert list(tmp_path.glob("*.mp4")) == []


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

"""``rljob eval`` and ``rljob play`` on a real checkpoint: untrained policies, written as the learner writes its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from rljob.checkpoints import store as checkpoint
from rljob.cli.app import app
from typer.testing import CliRunner, Result

from tests.support.untrained import untrained


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("run"), "cartpole-apex.yaml")


def test_eval_of_a_run_and_of_a_checkpoint_agree(run: Path) -> None:
    arguments = ("--episodes", 3, "--seed", 5, "--json")
    of_run, of_checkpoint = (
        invoke("eval", run, *arguments),
        invoke("eval", next((run / "checkpoints").iterdir()), *arguments),
    )
    assert of_run.exit_code == 0, of_run.output
    assert of_run.stdout == of_checkpoint.stdout
    figures = json.loads(of_run.stdout)
    assert figures["episodes"] == len(figures["returns"]) == 3
    assert figures["mean"] == pytest.approx(np.mean(figures["returns"]))
    assert figures["standard_error"] == pytest.approx(np.std(figures["returns"], ddof=1) / np.sqrt(3))
    assert figures["returns"] == figures["lengths_steps"], "CartPole pays 1 a step"


def test_eval_plays_where_the_run_judges(tmp_path: Path) -> None:
    limit = "spec.evaluator.environment={id: 'tests.support.reporting:CartPole', maxEpisodeSteps: 5}"
    of_run = invoke("eval", untrained(tmp_path, "cartpole-apex.yaml", limit), "--episodes", 3, "--json")
    assert of_run.exit_code == 0, of_run.output
    figures = json.loads(of_run.stdout)
    assert figures["environment"] == "tests.support.reporting:CartPole"
    assert figures["lengths_steps"] == [5, 5, 5]
    assert figures["metrics"] == {"upright": 1.0}


def test_eval_in_words_and_of_a_single_game(run: Path) -> None:
    result = invoke("eval", run, "--episodes", 2, "--epsilon", 1)
    assert "CartPole-v1: mean return" in result.stdout
    assert "(standard error) over 2 episodes" in result.stdout
    single = invoke("eval", run, "--episodes", 1, "--json")
    assert json.loads(single.stdout)["standard_error"] is None


def test_a_summary_fits_into_a_pods_last_words(run: Path) -> None:
    """A termination message has at most 4,096 bytes."""
    whole, short = (invoke("eval", run, "--episodes", 3, "--json", *more) for more in ((), ("--summary",)))
    figures = json.loads(short.stdout)
    assert not figures.keys() & {"returns", "metrics", "lengths_steps"}
    assert figures.items() <= json.loads(whole.stdout).items()
    assert len(short.stdout) < 500


def test_a_damaged_checkpoint_is_one_line(run: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "step-1"
    damaged.mkdir()
    for file in next((run / "checkpoints").iterdir()).iterdir():
        content = bytearray(file.read_bytes())
        if file.name == checkpoint.TENSORS:
            content[-1] ^= 1
        (damaged / file.name).write_bytes(content)
    result = invoke("eval", damaged)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_play_writes_the_screen_of_the_game(tmp_path: Path) -> None:
    """400 raw frames of Pong are 100 steps; the screen of 210x160 is doubled."""
    run = untrained(tmp_path, "pong-apex.yaml", "spec.environment.maxEpisodeRawFrames=400")
    video = tmp_path / "game.mp4"
    result = invoke("play", run, "--video", video)
    assert result.exit_code == 0, result.output
    assert f"{video}: return " in result.stdout
    with imageio.get_reader(video) as reader:
        assert 90 <= reader.count_frames() <= 101
        assert reader.get_data(0).shape == (420, 320, 3)


@pytest.mark.parametrize("missing", ["imageio", "imageio_ffmpeg"])
def test_play_without_the_video_extra_says_what_to_install(
    run: Path, tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    result = invoke("play", run, "--video", tmp_path / "game.mp4")
    assert result.exit_code == 2
    assert f"{missing} not installed" in result.stderr
    assert "pip install 'rljob[video]'" in result.stderr
    assert list(tmp_path.glob("*.mp4")) == []

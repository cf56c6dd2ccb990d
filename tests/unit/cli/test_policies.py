"""``rljob eval`` and ``rljob play`` on a real checkpoint: untrained policies, written as the learner writes its own."""

import json
import re
import shutil
import sys
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from rljob.checkpoints import store as checkpoint

from tests.support.command_line import printed, refused
from tests.support.untrained import untrained


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

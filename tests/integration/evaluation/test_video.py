"""Videos are of the real screen and play at the speed of the game."""

from __future__ import annotations

from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import EnvironmentProblem, describe_environment
from rljob.evaluation.video import record_game


def test_a_game_of_pong_becomes_an_mp4(tmp_path: Path) -> None:
    parameters = EnvironmentParameters(max_episode_raw_frames=400, atari={"frame_size": 42})
    path = tmp_path / "videos" / "pong.mp4"
    result = record_game(lambda o, games: np.zeros(len(o), np.int64), "ALE/Pong-v5", parameters, path, seed=3)
    with imageio.get_reader(path) as reader:
        meta = reader.get_meta_data()
        pictures = [np.asarray(picture) for picture in reader]
    assert meta["fps"] == pytest.approx(15)
    assert meta["size"] == (320, 420)
    assert len(pictures) == result.lengths[0] + 1
    assert pictures[0].std(axis=(0, 1)).min() > 5  # three different, lively colour channels
    assert not np.array_equal(pictures[0][..., 0], pictures[0][..., 2])
    assert list(path.parent.iterdir()) == [path]


def test_an_environment_that_cannot_draw_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"cannot be drawn|draws nothing"):
        record_game(
            lambda o, games: np.zeros(len(o), np.int64),
            "tests.support.toys:countdown",
            EnvironmentParameters(),
            tmp_path / "no.mp4",
        )
    assert list(tmp_path.iterdir()) == []


def test_mujoco_says_what_it_draws_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its renderer is broken here as it is on a machine without a display, which a machine of tests may have."""

    def render(env: object) -> None:
        raise RuntimeError("an OpenGL platform library has not been loaded into this process")

    monkeypatch.setattr("gymnasium.envs.mujoco.half_cheetah_v5.HalfCheetahEnv.render", render)
    parameters = EnvironmentParameters()
    with pytest.raises(EnvironmentProblem, match=r"cannot be drawn.*OpenGL platform.*MUJOCO_GL=egl"):
        record_game(
            lambda o, games: np.zeros((len(o), 6), np.float32),
            "HalfCheetah-v5",
            parameters,
            tmp_path / "no.mp4",
            spec=describe_environment("HalfCheetah-v5", parameters),
        )
    assert list(tmp_path.iterdir()) == []

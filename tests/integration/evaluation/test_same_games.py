"""A game is the same game, whoever plays it beside whichever others, by plain Gymnasium or ``rljob eval``; and its video."""

import hashlib
from contextlib import closing
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import pytest
import torch
from rljob.algorithms.registry import algorithm
from rljob.api import EnvironmentParameters, parse_job
from rljob.envs import EnvironmentProblem, describe_environment, make_single_environment
from rljob.envs.base import seed_of
from rljob.evaluation.player import judged_policy
from rljob.evaluation.players import Players
from rljob.evaluation.score import Played
from rljob.evaluation.video import record_game
from rljob.weights.flat import snapshot

from tests.support.evaluated_jobs import identity_of
from tests.support.jobs import manifest_of
from tests.support.plain_atari import plain_atari
from tests.support.scoring import play

PONG = manifest_of({"preset": "PongVTrace"}, "same-games")
GAMES = 3
SEED = 11


class Erratic:
    """Plays by what it sees and by the game's own draws, and keeps a digest of all it saw of each game."""

    def __init__(self, num_actions: int) -> None:
        self._num_actions = num_actions
        self.seen: dict[int, Any] = {}

    def __call__(self, observation: np.ndarray, games: Any) -> np.ndarray:
        actions = [
            self.one(frames, game.random, self.seen.setdefault(game.index, hashlib.sha256()))
            for frames, game in zip(observation, games, strict=True)
        ]
        return np.array(actions)

    def one(self, frames: np.ndarray, random: np.random.Generator, digest: Any) -> int:
        digest.update(np.ascontiguousarray(frames).tobytes())
        return (int(frames.sum()) + int(random.integers(self._num_actions))) % self._num_actions


def by_hand(environment_id: str, parameters: EnvironmentParameters, seed: int, index: int) -> tuple[Played, str]:
    """One game on Gymnasium's own stack, written out and stepped here; nothing of the scorer is used."""
    env: Any = plain_atari(environment_id, parameters)
    policy, random, digest = Erratic(int(env.action_space.n)), np.random.default_rng([seed, index, 1]), hashlib.sha256()
    observation, _ = env.reset(seed=seed_of(seed, "game", index))
    points, length, over = 0.0, 0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy.one(observation, random, digest))
        points, length, over = points + float(reward), length + 1, terminated or truncated
    env.close()
    return Played(index, points, length), digest.hexdigest()


@pytest.mark.parametrize(
    ("environment_id", "settings"),
    [
        ("ALE/Pong-v5", {"atari": {"frame_size": 42}, "max_episode_raw_frames": 2_002}),
        ("ALE/Breakout-v5", {"atari": {"sticky_action_probability": 0.25, "frame_size": 84}}),
        ("ALE/BeamRider-v5", {"max_episode_raw_frames": 1_501}),  # a game that depends on the emulator's own seed
    ],
)
def test_every_game_is_the_one_that_plain_gymnasium_plays(
    environment_id: str, settings: dict[str, Any], closes: Any
) -> None:
    """Every frame that the policy saw, every length and every raw, unclipped score; side by side and one after the other."""
    parameters = EnvironmentParameters(**{"reward_clipping": "Enabled", **settings})
    scored = {"for_scoring": True, "restarting": True}
    envs = [closes(make_single_environment(environment_id, parameters, **scored)) for _ in range(3)]
    policy = Erratic(int(envs[0].action_space.n))  # type: ignore[attr-defined]
    ended = sorted(play(policy, envs, range(GAMES), SEED), key=lambda game: game.index)
    expected = [by_hand(environment_id, parameters, SEED, index) for index in range(GAMES)]
    assert ended == [game for game, _ in expected]
    assert [policy.seen[index].hexdigest() for index in range(GAMES)] == [digest for _, digest in expected]
    assert len({digest for _, digest in expected}) > 1, "seeds begin different games"


@pytest.mark.long
def test_a_network_plays_the_same_games_in_any_company() -> None:
    """Sampled actions of a real network: one game alone, several in one process, and shared by two of them."""
    policy = identity_of(parse_job(PONG))
    chosen = algorithm(policy.algorithm)
    torch.manual_seed(5)
    module = chosen.build(policy.spec, policy.params, policy.env_params).eval()
    with torch.no_grad():
        module.policy.weight.mul_(300.0)  # type: ignore[operator, union-attr]  # opinionated, so that rounding could matter
    act = judged_policy(chosen, module, policy.params)
    with closing(make_single_environment(policy.spec.id, policy.env_params, for_scoring=True)) as env:
        alone = list(play(act, [env], range(3), SEED))
    assert len({(game.points, game.length) for game in alone}) > 1
    weights = snapshot(module, 1, 1, {})
    for processes in (1, 2):
        with closing(Players(policy, processes, 3)) as players:
            shared = list(players.play(weights, range(3), SEED, lambda: None))
        assert sorted(shared, key=lambda game: game.index) == alone, f"{processes} processes"


def test_a_game_of_pong_becomes_an_mp4(tmp_path: Path) -> None:
    parameters = EnvironmentParameters(max_episode_raw_frames=400, atari={"frame_size": 42})
    path = tmp_path / "videos" / "pong.mp4"
    game = record_game(lambda o, games: np.zeros(len(o), np.int64), "ALE/Pong-v5", parameters, path, seed=3)
    with imageio.get_reader(path) as reader:
        meta = reader.get_meta_data()
        pictures = [np.asarray(picture) for picture in reader]
    assert (meta["fps"], meta["size"]) == (pytest.approx(15), (320, 420))
    assert len(pictures) == game.length + 1
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

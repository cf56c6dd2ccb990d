"""Scores of games whose outcome is known beforehand."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import describe_environment, make_single_environment
from rljob.envs.seeds import seed_of
from rljob.evaluation.player import best_possible_return
from rljob.evaluation.score import Played, Sitting, play, score, tally


class Dice(gymnasium.Env[Any, Any]):
    """A game of as many steps as its seed says; action 1 earns 7.5 (beyond any clipping), action 0 loses 1."""

    observation_space = gymnasium.spaces.Box(0, 1e6, (1, 1), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        assert seed is not None
        self.left = 3 + seed % 5
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self._observation(), 7.5 if action == 1 else -1.0, False, self.left == 0, {}

    def _observation(self) -> Any:
        return np.full((1, 1), self.left, np.float32)


def length_of(seed: int, game: int) -> int:
    """Steps of a game of an evaluation of `Dice`."""
    return 3 + seed_of(seed, "game", game) % 5


def _one(observation: Any, games: Any) -> Any:
    return np.ones(len(observation), np.int64)


def test_returns_are_unclipped_and_in_order_of_beginning() -> None:
    result = score(_one, [Dice(), Dice(), Dice()], episodes=7, seed=10)
    lengths = tuple(length_of(10, g) for g in range(7))
    assert result.lengths == lengths
    assert result.returns == tuple(7.5 * n for n in lengths)
    values = 7.5 * np.array(lengths)
    assert result.mean == pytest.approx(values.mean())
    assert result.standard_error == pytest.approx(math.sqrt(((values - values.mean()) ** 2).sum() / 6 / 7))
    assert result.finished


def test_other_seeds_play_other_games() -> None:
    begun: list[int | None] = []

    class Noted(Dice):
        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Any, dict[str, Any]]:
            begun.append(seed)
            return super().reset(seed=seed)

    for seed in (1, 2, 3):
        score(_one, Noted(), episodes=100, seed=seed)
    assert len(set(begun)) == 300


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_a_score_does_not_depend_on_how_many_games_run_side_by_side(epsilon: float) -> None:
    alone = score(_one, Dice(), 6, seed=3, epsilon=epsilon)
    together = score(_one, [Dice() for _ in range(4)], 6, seed=3, epsilon=epsilon)
    assert alone == together == score(_one, [Dice() for _ in range(9)], 6, seed=3, epsilon=epsilon)


def test_epsilon_is_the_share_of_random_actions() -> None:
    zero = score(lambda o, games: np.zeros(len(o), np.int64), [Dice() for _ in range(8)], 400, seed=0, epsilon=0.4)
    steps = sum(zero.lengths)
    ones = (sum(zero.returns) + steps) / 8.5
    expected = 0.4 / 2
    assert abs(ones / steps - expected) < 4 * math.sqrt(expected * (1 - expected) / steps)


def test_one_game_has_no_standard_error_and_none_is_refused() -> None:
    assert math.isnan(score(_one, Dice(), 1, seed=0).standard_error)
    with pytest.raises(ValueError, match="no game"):
        score(_one, Dice(), 0, seed=0)


def test_what_the_environment_reports_is_a_mean_over_the_games_that_have_it() -> None:
    name, parameters = "tests.support.reporting:Now", EnvironmentParameters()
    spec = describe_environment(
        name, parameters
    )  # of another copy, or this one's first game would be taken to look at it
    env = make_single_environment(name, parameters, for_scoring=True, spec=spec)
    with closing(env):
        assert score(_one, env, 4, seed=0).metrics == {"is_success": 0.75, "distance": 0.25, "first": 1.0}
        assert score(_one, env, 2, seed=0).metrics == {"is_success": 1.0, "distance": 0.25}


def test_giving_up_keeps_what_was_finished() -> None:
    games = play(_one, [Dice()], range(10), seed=0)
    result = tally(games, 10, give_up=lambda ended: ended if len(ended) >= 3 else None)
    assert next(games).index == 3, "no further game was begun"
    assert not result.finished
    assert len(result.returns) == 3


def test_all_games_count_whichever_end_first() -> None:
    """Long games first to begin, and side by side with the short ones that overtake them: the mean is of games 0 to 9."""
    envs = [Dice() for _ in range(4)]
    ended = list(play(_one, envs, range(10), seed=4))
    assert [game.index for game in ended] != sorted(game.index for game in ended)
    result = tally(ended, 10)
    assert result.lengths == tuple(length_of(4, g) for g in range(10))
    assert result == score(_one, Dice(), 10, seed=4)


def test_a_sitting_that_begins_anew_abandons_what_was_in_play() -> None:
    sitting = Sitting(_one, [Dice(), Dice()])
    sitting.begin(0)
    sitting.deal(0)
    sitting.step()
    assert (sitting.playing, sitting.free) == (1, 1)
    sitting.begin(7)
    assert (sitting.playing, sitting.free, sitting.step()) == (0, 2, [])
    sitting.deal(1)
    ended = [played for _ in range(10) for played in sitting.step()]
    assert ended == [Played(1, 7.5 * length_of(7, 1), length_of(7, 1))]


def test_a_sign_of_life_comes_before_the_step_of_each_game() -> None:
    """Sixteen games of a simulator that needs seconds a step take longer together than a turn may."""
    signs: list[None] = []
    sitting = Sitting(_one, [Dice(), Dice()])
    sitting.begin(7)
    sitting.deal(0)
    sitting.deal(1)
    sitting.step(lambda: signs.append(None))
    assert len(signs) == 2


@pytest.mark.parametrize(
    ("made", "most"),
    [
        ("ALE/Pong-v5", 21.0),
        ("PongNoFrameskip-v4", 21.0),
        ("CartPole-v1", 500.0),
        ("CartPole-v1 of 1000", 1000.0),
        ("CartPole-v1 of -1", None),
        ("ALE/Breakout-v5", None),
        ("tests.support.toys:countdown", None),
    ],
)
def test_best_returns_that_are_vouched_for(made: str, most: float | None) -> None:
    """With the limit of steps of the environment that was made, not of the one that is registered."""
    environment_id, _, steps = made.partition(" of ")
    parameters = EnvironmentParameters(kwargs={"max_episode_steps": int(steps)} if steps else {})
    with closing(make_single_environment(environment_id, parameters, for_scoring=True, restarting=True)) as env:
        assert best_possible_return(environment_id, env) == most

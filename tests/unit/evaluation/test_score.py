"""Scores of games whose outcome is known beforehand, and of a policy whose actions do not depend on the games beside it."""

import math
from collections.abc import Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from rljob.algorithms.policy_network import PolicyConfig, PolicyNetwork
from rljob.api import EnvironmentParameters
from rljob.envs import describe_environment, make_single_environment
from rljob.envs.base import seed_of
from rljob.evaluation.player import ROWS, judged_policy, known_bounds
from rljob.evaluation.score import Played, Sitting, tally

from tests.support.scoring import play, score
from tests.support.specs import spec_of


class Dice(gymnasium.Env[Any, Any]):
    """A game of as many steps as its seed says; action 1 earns 7.5 (beyond any clipping), action 0 loses 1."""

    observation_space = gymnasium.spaces.Box(0, 1e6, (1, 1), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
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
    assert (result.lengths, result.returns) == (lengths, tuple(7.5 * n for n in lengths))
    values = 7.5 * np.array(lengths)
    error = math.sqrt(((values - values.mean()) ** 2).sum() / 6 / 7)
    assert (result.mean, result.standard_error, result.finished) == pytest.approx((values.mean(), error, True))


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


def test_one_game_has_no_standard_error() -> None:
    assert math.isnan(score(_one, Dice(), 1, seed=0).standard_error)


def test_what_the_environment_reports_is_a_mean_over_the_games_that_have_it() -> None:
    name, parameters = "tests.support.reporting:Now", EnvironmentParameters()
    spec = describe_environment(
        name, parameters
    )  # of another copy, or this one's first game would be taken to look at it
    env = make_single_environment(name, parameters, for_scoring=True, spec=spec)
    with closing(env):
        four = score(_one, env, 4, seed=0)
        assert (four.metrics, four.metric_games) == ({"is_success": 0.75, "distance": 0.25, "first": 1.0}, {"first": 1})
        assert score(_one, env, 2, seed=0).metrics == {"is_success": 1.0, "distance": 0.25}


@pytest.mark.parametrize("verdict", [True, False])
def test_games_are_counted_in_their_order_and_none_is_begun_after_the_verdict(verdict: bool) -> None:
    """Long games are overtaken by short ones that began with them, and nothing counts before what began before it."""
    begun = list(play(_one, [Dice() for _ in range(4)], range(10), seed=4))
    assert [game.index for game in begun] != sorted(game.index for game in begun)
    games, seen = iter(begun), list[tuple[int, ...]]()

    def decided(counted: Sequence[Played]) -> bool | None:
        seen.append(tuple(game.length for game in counted))
        return verdict if len(counted) == 5 else None

    result = tally(games, decided)
    in_order = tuple(length_of(4, game) for game in range(10))
    assert seen == [in_order[: number + 1] for number in range(5)]
    assert (result.lengths, result.finished, len(list(games)) > 0) == (in_order[:5], verdict, True)
    assert tally(begun) == score(_one, Dice(), 10, seed=4)


def test_a_sitting_that_begins_anew_abandons_what_was_in_play() -> None:
    sitting = Sitting(_one, [Dice(), Dice()])
    sitting.begin(0)
    sitting.deal(0)
    sitting.step()
    assert (sitting.playing, sitting.free) == (1, 1)
    sitting.begin(7)
    assert (sitting.playing, sitting.free, sitting.step()) == (0, 2, [])
    sitting.deal(1)
    assert [played for _ in range(10) for played in sitting.step()] == [
        Played(1, 7.5 * length_of(7, 1), length_of(7, 1))
    ]


def test_a_sign_of_life_comes_before_the_step_of_each_game() -> None:
    """Sixteen games of a simulator that needs seconds a step take longer together than a turn may."""
    signs: list[None] = []
    sitting = Sitting(_one, [Dice(), Dice()])
    sitting.begin(7)
    for game in range(2):
        sitting.deal(game)
    sitting.step(lambda: signs.append(None))
    assert len(signs) == 2


@pytest.mark.parametrize(
    ("made", "bounds"),
    [
        ("ALE/Pong-v5", (-21.0, 21.0)),
        ("PongNoFrameskip-v4", (-21.0, 21.0)),
        ("CartPole-v1", (-1.0, 500.0)),
        ("CartPole-v1 of 1000", (-1.0, 1000.0)),
        ("CartPole-v1 of -1", None),
        ("ALE/Breakout-v5", None),
        ("tests.support.toys:countdown", None),
    ],
)
def test_bounds_that_are_vouched_for(made: str, bounds: tuple[float, float] | None) -> None:
    """With the limit of steps of the environment that was made, not of the one that is registered."""
    environment_id, _, steps = made.partition(" of ")
    parameters = EnvironmentParameters(kwargs={"max_episode_steps": int(steps)} if steps else {})
    with closing(make_single_environment(environment_id, parameters, for_scoring=True, restarting=True)) as env:
        assert known_bounds(environment_id, env) == bounds


# A judged policy's action for a game does not depend on the games beside it.

OBSERVATIONS = 40


def _spying(shapes: list[tuple[int, ...]]) -> Any:
    """An algorithm that notes what its network is shown; its action is the first number of the observation."""

    def evaluation_action(parameters: Any, module: Any, observation: np.ndarray, games: Any) -> np.ndarray:
        shapes.append(observation.shape)
        assert len(games) == len(observation)
        for game in games:
            game.memory = (game.memory or 0) + int(game.random.integers(1, 2))
        return observation[:, 0, 0].astype(np.int64)

    return SimpleNamespace(evaluation_action=evaluation_action)


@pytest.mark.parametrize("count", [1, 2, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS])
def test_the_network_always_sees_as_many_rows(count: int) -> None:
    shapes: list[tuple[int, ...]] = []
    policy = judged_policy(_spying(shapes), torch.nn.Identity(), None)
    games = [SimpleNamespace(random=np.random.default_rng(k), memory=None) for k in range(count)]
    observation = np.arange(3 * count, dtype=np.float32).reshape(count, 3, 1)
    for _ in range(2):
        assert policy(observation, games).tolist() == list(range(0, 3 * count, 3))
    assert set(shapes) == {(ROWS, 3, 1)}
    assert [game.memory for game in games] == [2] * count, "each game is asked once a step and keeps its own memory"


@pytest.mark.parametrize(
    ("kind", "shape", "stack", "lstm", "layer_norm"),
    [
        ("Compact", (42, 42), 4, 0, False),
        ("Compact", (42, 42), 4, 64, True),
        ("Nature", (84, 84), 4, 0, False),
        ("Deep", (42, 42), 4, 0, False),
        ("MLP", (4,), 1, 0, False),
        ("MLP", (4,), 1, 32, False),
    ],
)
def test_a_row_comes_out_the_same_wherever_it_stands(
    kind: str, shape: tuple[int, ...], stack: int, lstm: int, layer_norm: bool
) -> None:
    """What a fixed number of rows rests on: with one thread a row's result is the same to the last bit in any place and beside
    any others. (With another number of rows it is not.)"""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        spec, seen_as = spec_of("Test", shape, "float32", stack, 6), EnvironmentParameters(input_scale=1 / 255)
        network = PolicyNetwork(PolicyConfig(kind, spec, seen_as, 128, lstm, layer_norm)).eval()
        observation = torch.randint(0, 255, (OBSERVATIONS, stack, *shape)).float()
        state = torch.randn(OBSERVATIONS, 2, lstm)
        seen: dict[int, torch.Tensor] = {}
        compared = 0
        with torch.inference_mode():
            for _ in range(20):
                rows = torch.randperm(OBSERVATIONS)[:ROWS]
                logits, value, after = network(observation[rows], state[rows])
                results = torch.cat([logits, value[:, None], after.flatten(1)], dim=1)
                for row, result in zip(rows.tolist(), results, strict=True):
                    compared += row in seen
                    assert torch.equal(seen.setdefault(row, result.clone()), result)
        assert compared > OBSERVATIONS
    finally:
        torch.set_num_threads(threads)

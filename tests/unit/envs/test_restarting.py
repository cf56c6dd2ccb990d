"""Environments that fail are made anew, games that are judged are played again; and not for ever."""

from contextlib import closing
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from rljob.algorithms.base import Game
from rljob.api import EnvironmentParameters
from rljob.envs import (
    KeepsFailing,
    RestartLimit,
    describe_environment,
    make_restarting_environment,
    make_single_environment,
)
from rljob.envs.base import seed_of
from rljob.envs.restarting import FAILURE, RestartingEnv

from tests.support.scoring import score


class Fragile(gymnasium.Env[Any, Any]):
    """Observes (seed of its life, steps since then); games of 5 steps; raises at the steps or resets it is told to."""

    observation_space = gymnasium.spaces.Box(-1e12, 1e12, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    bad_steps: ClassVar[set[int]] = set()
    bad_resets: ClassVar[set[int]] = set()
    steps = resets = made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        type(self).resets += 1
        if self.resets in self.bad_resets:
            raise OSError("no plant")
        self.seed = seed if seed is not None else self.seed
        self.time = 0
        return np.array([self.seed, 0.0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        type(self).steps += 1
        if self.steps in self.bad_steps:
            raise RuntimeError("the plant caught fire")
        self.time += 1
        return np.array([self.seed, self.time]), 1.0, self.time == 5, False, {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Fragile.bad_steps, Fragile.bad_resets = set(), set()
    Fragile.steps = Fragile.resets = Fragile.made = 0


def test_a_failed_step_is_a_marked_end_and_the_next_life_has_a_seed_of_its_own() -> None:
    env = RestartingEnv(Fragile)
    Fragile.bad_steps = {2}
    env.reset(seed=7)
    env.step(0)
    _, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated, info) == (0.0, False, True, {"rljob_failure": "the plant caught fire"})
    assert (env.reset()[0].tolist(), env.reset()[1], Fragile.made) == ([seed_of(7, "life", 1), 0.0], {}, 2)


def test_a_failed_reset_is_tried_once_on_a_new_environment() -> None:
    env = RestartingEnv(Fragile)
    Fragile.bad_resets = {2, 4, 5}
    env.reset(seed=7)
    observation, info = env.reset()
    assert (observation.tolist(), info) == ([seed_of(7, "life", 1), 0.0], {"rljob_failure": "no plant"})
    with pytest.raises(OSError, match="no plant"):
        env.reset()


def test_an_actor_is_alive_between_the_environments_that_it_steps_in_turn() -> None:
    """Where eight reset for half a minute at once, a turn takes four; none of them has hung."""
    signs: list[None] = []
    parameters = EnvironmentParameters(backend="Sync")
    spec = describe_environment("CartPole-v1", parameters)
    env = make_restarting_environment(spec, parameters, 3, 0, RestartLimit(0), alive=lambda: signs.append(None))
    with closing(env):
        env.reset()
        after_reset = len(signs)
        env.step(np.zeros(3, np.int64))
    assert (after_reset, len(signs)) == (3, 6)


def test_too_many_failures_end_it_with_the_reason_and_the_parameter() -> None:
    limit = RestartLimit(2)
    for _ in range(2):  # after so many steps the first two are forgotten
        limit.played(10_000)
        limit.note("fire")
        limit.note("fire")
    with pytest.raises(KeepsFailing, match=r"^fire; failure 3 within 10,000 steps, allowed are 2$"):
        limit.note("fire")
    assert limit.total == 5


def test_a_game_whose_environment_fails_is_played_again() -> None:
    Fragile.bad_steps = {3, 9}
    seeds = []

    def policy(observation: Any, games: list[Game]) -> Any:
        seeds.append(int(observation[0, 0]))
        return np.zeros(len(games), np.int64)

    limit = RestartLimit(5)
    result = score(policy, RestartingEnv(Fragile), 2, 100, failures=limit)
    # The same game again, not another one.
    games = {seed_of(100, "game", game) for game in range(2)}
    assert (result.returns, result.lengths, limit.total, set(seeds)) == ((5.0, 5.0), (5, 5), 2, games)
    Fragile.bad_steps = set(range(10, 1000))
    with pytest.raises(KeepsFailing):
        score(policy, RestartingEnv(Fragile), 2, 100, failures=limit)


def test_a_plain_environment_for_scoring_can_be_a_restarting_one() -> None:
    seen = []
    for restarting in (False, True):
        env = make_single_environment("CartPole-v1", EnvironmentParameters(), for_scoring=True, restarting=restarting)
        with closing(env):
            seen.append(env.reset(seed=3)[0])
    assert np.array_equal(*seen)


def test_an_observation_of_another_shape_is_told_of_the_environment_that_gave_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Fragile, "step", lambda self, action: (None, 0.0, False, False, {}))
    env = make_single_environment(f"{__name__}:Fragile", EnvironmentParameters(), for_scoring=False, restarting=True)
    env.reset(seed=1)
    _, _, _, cut, info = env.step(0)
    assert (cut, "failed in step(): ValueError: expected an observation float64 [2]" in info[FAILURE]) == (True, True)

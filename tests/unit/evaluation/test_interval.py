"""The interval of a mean that is judged before its last game: right at all stops together, for returns of real policies, too."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rljob.evaluation.verdicts import LEAST_GAMES, deviations, interval

from benchmarks.verdict import EPISODES, judged, policies

POLICIES = policies()
PONG = (-21.0, 21.0)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("margin", [-0.5, -0.1, 0.0])
def test_of_policies_at_or_below_their_target_one_verdict_in_a_hundred_says_wrongly_that_all_games_reach_it(
    name: str, margin: float
) -> None:
    """Their returns, drawn with replacement. Nor is one in a hundred given up whose games would have reached it, and half a
    standard deviation below no more pass than a hundred games let."""
    policy = POLICIES[name]
    found = judged(policy, policy.target(margin), 10_000, np.random.default_rng(1), policy.bounds)
    assert max(found.passed_wrongly, found.given_up_wrongly) <= 0.01
    assert found.passed <= found.all_games_pass + 0.01


@pytest.mark.parametrize(
    ("returns", "games"),
    [([21.0] * 100, 52), ([20.0, 19.0, 21.0, 20.0] * 25, 67), ([20.0] * 40 + [-21.0] + [20.0] * 59, 87)],
)
def test_what_reaches_its_target_is_known_before_the_last_game(returns: list[float], games: int) -> None:
    """Pong to 18 points. No rule without further assumptions could pass fewer than 43 games of 21 points: of a hundred games with
    eight lost ones, which have a mean below 18, so many leave all eight out with a probability of one in a hundred."""
    proven = [interval(returns[:number], EPISODES, PONG)[0] >= 18 for number in range(1, EPISODES)]
    assert proven.index(True) + 1 == games
    assert math.comb(92, 42) / math.comb(100, 42) > 0.01 > math.comb(92, 43) / math.comb(100, 43)


def test_what_misses_its_target_is_known_soon() -> None:
    assert interval([16.0, 17.0] * 12, EPISODES, PONG)[1] < 18 <= interval([17.0, 19.0] * 12, EPISODES, PONG)[1]


@given(st.lists(st.integers(0, 3), min_size=LEAST_GAMES, max_size=LEAST_GAMES + 4))
def test_it_has_the_mean_of_all_games_where_that_is_certain(returns: list[int]) -> None:
    """Against the worst and the best that two more games can do."""
    episodes = len(returns) + 2
    low, high = interval(returns, episodes, (0.0, 3.0))
    assert low <= (sum(returns) + 6) / episodes + 1e-5
    assert high >= sum(returns) / episodes - 1e-5


@pytest.mark.parametrize("bounds", [PONG, None])
def test_nothing_is_decided_before_twenty_games(bounds: tuple[float, float] | None) -> None:
    assert interval([21.0] * (LEAST_GAMES - 1), EPISODES, bounds) == (-math.inf, math.inf)


def test_without_bounds_it_is_students_widened_for_every_stop() -> None:
    """By hand after 20 games: 1 + 20 / 4 = 6, (50 sqrt 6)^(1/10) = 1.617, and 0.617 / (1 - 1.617 / 6) = 0.845."""
    assert deviations(20) == pytest.approx(math.sqrt(0.845 * 19 / 20), abs=1e-3)
    low, high = interval([9.0, 11.0] * 10, EPISODES, None)
    assert (10 - low, high - 10) == pytest.approx([deviations(20) * math.sqrt(20 / 19)] * 2)
    assert interval([500.0] * 20, EPISODES, None) == (-math.inf, 500.0), "equal returns say nothing of rarer ones"


def test_without_bounds_normal_returns_are_judged_wrongly_once_in_a_hundred() -> None:
    """A policy at its target, looked at after each of a thousand games."""
    returns = np.random.default_rng(1).normal(0.0, 1.0, (4000, 1000))
    games = np.arange(1, 1001)
    mean = returns.cumsum(1) / games
    deviation = np.sqrt(((returns**2).cumsum(1) - games * mean**2) / np.maximum(games - 1, 1))
    above = mean >= deviation * [deviations(max(each, LEAST_GAMES)) for each in games]
    assert 0.002 * 4000 < above[:, LEAST_GAMES - 1 :].any(1).sum() <= 0.01 * 4000


def test_the_benchmarks_verdicts_are_those_of_the_interval() -> None:
    """Whole evaluations, game by game, against its shares of many at once."""
    policy, target = POLICIES["pong-good"], POLICIES["pong-good"].target(0.5)
    for bounds in (policy.bounds, None):
        returns = np.random.default_rng(3).choice(policy.returns, (10, EPISODES))
        passed = []
        for one in returns:
            looks = ((n, *interval(one[:n].tolist(), EPISODES, bounds)) for n in range(LEAST_GAMES, EPISODES))
            end = next(itertools.dropwhile(lambda look: look[1] < target <= look[2], looks), (EPISODES, target, 0.0))
            passed += [end[0]] if end[1] >= target and (end[0] < EPISODES or one.mean() >= target) else []
        found = judged(policy, target, 10, np.random.default_rng(3), bounds)
        assert (found.passed, found.games) == (len(passed) / 10, pytest.approx(np.mean(passed)))

"""What the first games prove of the mean of all: right at all stops together, for returns of real policies, too."""

import math

import numpy as np
import pytest
from rljob.evaluation.verdicts import LEAST_GAMES, deviations, proven

from benchmarks.verdict import EPISODES, judged, policies

POLICIES = policies()
PONG = (-21.0, 21.0)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("margin", [-0.5, -0.1, 0.0])
def test_of_policies_at_or_below_their_target_one_verdict_in_a_hundred_says_wrongly_that_all_games_reach_it(
    name: str, margin: float
) -> None:
    """Their returns, drawn with replacement. Nor do more pass than a hundred games let."""
    policy = POLICIES[name]
    found = judged(policy, policy.target(margin), 10_000, np.random.default_rng(1), policy.bounds)
    assert found.passed_wrongly <= 0.01
    assert found.passed <= found.all_games_pass + 0.01


@pytest.mark.parametrize("name", POLICIES)
def test_hardly_any_policy_well_above_its_target_is_given_up(name: str) -> None:
    policy = POLICIES[name]
    found = judged(policy, policy.target(0.5), 10_000, np.random.default_rng(1), policy.bounds)
    assert found.passed >= 0.95


@pytest.mark.parametrize(
    ("returns", "games"),
    [([21.0] * 100, 52), ([20.0, 19.0, 21.0, 20.0] * 25, 67), ([20.0] * 40 + [-21.0] + [20.0] * 59, 87)],
)
def test_what_reaches_its_target_is_known_before_the_last_game(returns: list[float], games: int) -> None:
    """Pong to 18 points. No rule without further assumptions could pass fewer than 43 games of 21 points: of a hundred games with
    eight lost ones, which have a mean below 18, so many leave all eight out with a probability of one in a hundred."""
    reached = [proven(returns[:number], EPISODES, PONG) >= 18 for number in range(1, EPISODES)]
    assert reached.index(True) + 1 == games
    assert math.comb(92, 42) / math.comb(100, 42) > 0.01 > math.comb(92, 43) / math.comb(100, 43)


@pytest.mark.parametrize("bounds", [PONG, None])
def test_nothing_is_decided_before_twenty_games(bounds: tuple[float, float] | None) -> None:
    assert proven([21.0] * (LEAST_GAMES - 1), EPISODES, bounds) == -math.inf


def test_without_bounds_it_is_students_widened_for_every_stop() -> None:
    """By hand after 20 games: 1 + 20 / 4 = 6, (50 sqrt 6)^(1/10) = 1.617, and 0.617 / (1 - 1.617 / 6) = 0.845."""
    assert deviations(20) == pytest.approx(math.sqrt(0.845 * 19 / 20), abs=1e-3)
    assert 10 - proven([9.0, 11.0] * 10, EPISODES, None) == pytest.approx(deviations(20) * math.sqrt(20 / 19))
    assert proven([500.0] * 20, EPISODES, None) == -math.inf, "equal returns say nothing of rarer ones"


def test_without_bounds_normal_returns_are_judged_wrongly_once_in_a_hundred() -> None:
    """A policy at its target, looked at after each of a thousand games."""
    returns = np.random.default_rng(1).normal(0.0, 1.0, (4000, 1000))
    games = np.arange(1, 1001)
    mean = returns.cumsum(1) / games
    deviation = np.sqrt(((returns**2).cumsum(1) - games * mean**2) / np.maximum(games - 1, 1))
    above = mean >= deviation * [deviations(max(each, LEAST_GAMES)) for each in games]
    assert 0.002 * 4000 < above[:, LEAST_GAMES - 1 :].any(1).sum() <= 0.01 * 4000


def test_the_benchmarks_verdicts_are_those_of_the_evaluator() -> None:
    """Whole evaluations, game by game, against its shares of many at once."""
    policy, target = POLICIES["pong-good"], POLICIES["pong-good"].target(0.5)
    for bounds in (policy.bounds, None):
        passed = []
        for one in np.random.default_rng(3).choice(policy.returns, (10, EPISODES)):
            looks = (
                (n, proven(one[:n].tolist(), EPISODES, bounds), one[:n].mean()) for n in range(LEAST_GAMES, EPISODES)
            )
            games, low, mean = next(
                (look for look in looks if look[1] >= target or look[2] < target), (EPISODES, 0, one.mean())
            )
            passed += [games] if max(low, mean) >= target else []
        found = judged(policy, target, 10, np.random.default_rng(3), bounds)
        assert (found.passed, found.games) == (len(passed) / 10, pytest.approx(np.mean(passed)))

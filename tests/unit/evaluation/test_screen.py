"""When an evaluation is given up: never against what could still happen, and rarely against what would have."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from rljob.evaluation.score import Played
from rljob.evaluation.screen import SCREEN_GAMES, could_still_reach, foretold, hopeless

EPISODES = 100


def played(returns: list[float] | np.ndarray, first: int = 0) -> list[Played]:
    return [Played(first + number, float(value), 10) for number, value in enumerate(returns)]


@given(
    target=st.integers(-3, 3),
    returns=st.lists(st.integers(-3, 3), max_size=3),
    missing=st.integers(0, 3),
)
def test_reachability_is_exact(target: int, returns: list[int], missing: int) -> None:
    """Against trying every way in which the remaining games can end."""
    episodes = len(returns) + missing
    assume(episodes)
    outcomes = itertools.product(range(-3, 4), repeat=missing)
    possible = any(sum(returns) + sum(rest) >= target * episodes for rest in outcomes)
    assert could_still_reach(target, returns, episodes, 3) == possible


@pytest.mark.parametrize(
    ("target", "returns", "episodes", "best", "given_up"),
    [
        (1e9, [0.0] * (SCREEN_GAMES - 1), EPISODES, None, False),  # an unknown best, before the screen
        (18.0, [10.0, 11.0] * 9, SCREEN_GAMES, None, False),  # no longer than the screen
        # Three of twenty games lost by 21, the others won: a mean of 14.7, but so wide that a hundred may well make 18.
        (18.0, [21.0] * 17 + [-21.0] * 3, EPISODES, 21.0, False),
        (18.0, [16.0, 17.0] * 10, EPISODES, 21.0, True),  # narrow, and below
    ],
)
def test_it_is_given_up_where_the_screen_is_over_and_foretells_too_little(
    target: float, returns: list[float], episodes: int, best: float | None, given_up: bool
) -> None:
    assert (hopeless(target, played(returns), episodes, best) is not None) is given_up
    assert could_still_reach(1e9, [0.0, 0.0], 3, None), "an unknown best may be anything"


def test_what_is_out_of_reach_is_given_up_by_all_games_that_ended() -> None:
    """Target 18 of at most 21: a mean of 100 games may fall short of 21 by 300 points in all."""
    ended = played([-21.0] * 7, first=50)
    assert hopeless(18.0, ended, EPISODES, 21.0) is None
    ended.append(Played(3, -21.0, 10))
    assert hopeless(18.0, ended, EPISODES, 21.0) == ended


def test_the_screen_waits_for_its_own_games_and_counts_no_others() -> None:
    """Nineteen screened games and thirty that overtook the twentieth decide nothing; then the twenty decide alone."""
    ended = played([10.0] * 10 + [11.0] * 9) + played([10.0] * 30, first=20)
    assert hopeless(18.0, ended, EPISODES, None) is None
    ended.append(Played(19, 11.0, 10))
    assert sorted(game.index for game in hopeless(18.0, ended, EPISODES, None)) == list(range(SCREEN_GAMES))
    good = played([19.0] * 10 + [17.5] * 10) + played([0.0] * 5, first=20)
    assert hopeless(18.0, good, EPISODES, 21.0) is None, "the screened games alone are looked at"


def test_the_prediction_is_the_textbook_one() -> None:
    """By hand: deviation 1 (n - 1 in the divisor), mean 15, the quantile 2.539 of t with 19 degrees of freedom."""
    values = np.tile([-1.0, 1.0], SCREEN_GAMES // 2)
    screened = played(15.0 + values / values.std(ddof=1))
    assert foretold(screened, EPISODES) == pytest.approx(15.0 + 2.539 * 0.8 * math.sqrt(1 / 20 + 1 / 80), abs=1e-9)


@pytest.mark.parametrize(
    ("draw", "most_wrong", "least_right"),
    [
        pytest.param(lambda random, size: random.normal(0.0, 1.0, size), 0.018, 0.95, id="normal"),
        pytest.param(
            lambda random, size: np.where(random.random(size) < 0.1, -21.0, 20.0), 0.002, 0.95, id="lost-games"
        ),
        pytest.param(lambda random, size: -random.exponential(1.0, size), 0.004, 0.95, id="skewed-downwards"),
        pytest.param(lambda random, size: random.exponential(1.0, size), 0.06, 0.85, id="skewed-upwards"),
    ],
)
def test_what_would_have_reached_its_target_is_hardly_ever_given_up(
    draw: Callable[[np.random.Generator, int], np.ndarray], most_wrong: float, least_right: float
) -> None:
    """Evaluations of 100 games, each with the very mean that it had in the end as its target: for normal returns the screen
    gives up one in a hundred, for those with lost games hardly any, for rare high ones up to one in twenty. Where the target is
    a standard deviation higher it gives up nearly all: it is no ornament."""
    random = np.random.default_rng(1)
    wrong, right, rounds = 0, 0, 4000
    for _ in range(rounds):
        returns = draw(random, EPISODES)
        ended = played(returns[:SCREEN_GAMES])
        wrong += hopeless(float(returns.mean()), ended, EPISODES, None) is not None
        right += hopeless(float(returns.mean() + returns.std()), ended, EPISODES, None) is not None
    assert wrong <= most_wrong * rounds
    assert right >= least_right * rounds

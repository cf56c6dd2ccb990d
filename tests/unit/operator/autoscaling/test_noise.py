"""What noisy figures prove, and what they do not."""

from __future__ import annotations

import random
from dataclasses import replace

from rljob.api.autoscaling import AutoscalingSpec
from rljob_operator.core.autoscaling import ScalingSample
from rljob_operator.core.autoscaling.memory import RateMemory
from rljob_operator.core.autoscaling.rates import figure_error, observe, rates

SPEC = AutoscalingSpec(mode="Internal")
ACTORS = 40


def figures(now: float, wait: float, error: float = 0.0, chance: random.Random | None = None) -> ScalingSample:
    """Forty actors of one item a second; the learner waits as much as is said. Rates err as is said."""
    one, other = (1 + error * chance.gauss(0, 1) if chance else 1.0 for _ in range(2))
    return ScalingSample(now, wait, 0.0, ACTORS * max(0.1, one), ACTORS * max(0.1, other), 32.0, 64.0, 1.0)


def after(error: float, samples: int = 60, seed: int = 0, wait: float = 0.01) -> RateMemory:
    chance, memory = random.Random(seed), RateMemory()
    for k in range(samples):
        memory = observe(SPEC, memory, figures(15.0 * k, wait, error, chance), ACTORS)
    return memory


def needed(memory: RateMemory) -> float:
    return rates(memory).needed


def test_the_error_of_figures_is_measured() -> None:
    for error, low, high in ((0.0, 0.0, 0.03), (0.1, 0.06, 0.15), (0.4, 0.2, 0.6)):
        assert low <= figure_error(after(error)) <= high


def test_figures_that_do_not_all_come_in_are_not_noisy() -> None:
    memory = RateMemory()
    for k in range(200):
        memory = observe(SPEC, memory, replace(figures(15.0 * k, 0.01), production_per_second=20.0), ACTORS)
    assert figure_error(memory) < 0.05


def test_one_sample_proves_a_jump_where_figures_are_good_and_not_where_they_are_bad() -> None:
    good, bad = after(0.1), after(0.8)
    jump = figures(15.0 * 60, 0.43)
    assert needed(observe(SPEC, good, jump, ACTORS)) > 60
    seen = observe(SPEC, bad, jump, ACTORS)
    assert needed(seen) < 60
    for k in range(61, 76):
        seen = observe(SPEC, seen, figures(15.0 * k, 0.43), ACTORS)
    assert needed(seen) > 65, "the window follows"


def test_a_jump_that_a_sample_caught_half_way_is_followed_to_its_end() -> None:
    memory = after(0.1)
    for k, wait in ((60, 0.2), (61, 0.43)):
        memory = observe(SPEC, memory, figures(15.0 * k, wait), ACTORS)
    assert needed(memory) > 68


def test_noise_makes_growth_careful() -> None:
    none, some, much = (rates(after(error, wait=0.43)).uncertainty for error in (0.0, 0.1, 0.8))
    assert none <= some < much <= 0.5

"""The shipped law on the simulated job of `benchmarks/autoscaler_sim.py`, with fewer seeds than the benchmark."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))

from autoscaler_sim import FAULTS, HELD, means, overshoot_percent
from autoscaling.laws import run_law
from autoscaling.plant import Scenario, simulate

SEEDS = 3


def test_the_plain_scenario() -> None:
    found = means("shipped", Scenario(), SEEDS)
    assert found["starved_percent"] <= 3.5
    assert found["blocked_percent"] <= 1.0
    assert found["reversals"] <= 10
    assert found["starts"] <= 165


def test_the_yardsticks_are_where_arithmetic_puts_them() -> None:
    few = means("static_40", Scenario(jitter=0.0), 1)
    assert few["starved_percent"] == pytest.approx(100 * (0.25 * (1 - 40 / 70) + 0.5 * (1 - 24 / 70)), abs=0.5)
    many = means("static_117", Scenario(jitter=0.0), 1)
    assert many["blocked_percent"] == pytest.approx(100 * (0.25 * (1 - 40 / 117) + 0.25 * (1 - 70 / 117)), abs=0.5)


@pytest.mark.parametrize("case", [name for name, scenario in FAULTS.items() if scenario is not HELD])
def test_faults_cost_at_most_twice_the_plain_scenario(case: str) -> None:
    found = means("shipped", FAULTS[case], SEEDS)
    assert found["starved_percent"] <= 2 * 3.0
    noisy = FAULTS[case].noise > 0.5  # the one fault that costs more, as docs/autoscaling.md says
    assert found["blocked_percent"] <= (4.0 if noisy else 2 * 0.8)
    assert found["reversals"] <= 2 * 9
    assert found["starts"] <= 2 * 155


def test_nothing_winds_up_during_an_hour_at_the_maximum() -> None:
    assert overshoot_percent(HELD, SEEDS) <= 10.0


def test_the_same_seed_gives_the_same_run() -> None:
    scenario, law = run_law("shipped", Scenario(seconds=900))
    first = simulate(scenario, law, 1)
    scenario, law = run_law("shipped", Scenario(seconds=900))
    assert simulate(scenario, law, 1) == first
    assert statistics.mean(first.desired) > 4

"""The shipped law on the simulated job of `benchmarks/autoscaler_sim.py`, with fewer seeds than the benchmark."""

import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from benchmarks.autoscaler_sim import CAPPED, FAULTS, HELD, ITERATIONS, LAGGING, Runs
from benchmarks.autoscaling.laws import run_law
from benchmarks.autoscaling.plant import Scenario, simulate

SEEDS = range(2)


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with ProcessPoolExecutor() as pool:
        yield Runs(pool, SEEDS)


def over(found: dict[str, float], **most: float) -> dict[str, float]:
    """The figures that are larger than they may be."""
    return {name: found[name] for name in most if found[name] > most[name]}


def test_the_plain_scenario(runs: Runs) -> None:
    found = runs.means("shipped", Scenario())
    assert over(found, starved_percent=3.5, blocked_percent=1.0, reversals=10, starts=165) == {}


def test_the_yardsticks_are_where_arithmetic_puts_them(runs: Runs) -> None:
    few = runs.means("static_40", Scenario(jitter=0.0))
    assert few["starved_percent"] == pytest.approx(100 * (0.25 * (1 - 40 / 70) + 0.5 * (1 - 24 / 70)), abs=0.5)
    many = runs.means("static_117", Scenario(jitter=0.0))
    assert many["blocked_percent"] == pytest.approx(100 * (0.25 * (1 - 40 / 117) + 0.25 * (1 - 70 / 117)), abs=0.5)


@pytest.mark.parametrize("case", [name for name, scenario in FAULTS.items() if scenario is not HELD])
def test_faults_cost_at_most_twice_the_plain_scenario(runs: Runs, case: str) -> None:
    found = runs.means("shipped", FAULTS[case])
    twice = {"starved_percent": 2 * 3.0, "blocked_percent": 2 * 0.8, "reversals": 2 * 9, "starts": 2 * 155}
    assert over(found, **twice) == {}


def test_nothing_winds_up_during_an_hour_at_the_maximum(runs: Runs) -> None:
    assert runs.overshoot_percent(HELD) <= 10.0


@pytest.mark.parametrize("case", ["production capped at 30 of 70", "production capped at 60 of 70"])
def test_growth_that_brings_nothing_is_taken_back(runs: Runs, case: str) -> None:
    found = runs.means("shipped", CAPPED[case])
    assert over(found, mean_actors=110, reversals=10) == {}, "196 and 193 actors where it stays"


def test_the_knee_of_the_lag_is_remembered(runs: Runs) -> None:
    found = runs.means("shipped", LAGGING["policy lag too high from 50 of 70 actors on"])
    assert over(found, lag_high_percent=6, reversals=8, starts=180) == {}, "43 % where it is not"


@pytest.mark.parametrize("case", [name for name in ITERATIONS if name.endswith("lag 1")])
def test_iterations_are_fed_as_they_are_learned_from(runs: Runs, case: str) -> None:
    """Seen as a queue of what waits alone, iterations of 512 items had 11 actors of the 86 that they need."""
    best, found = (runs.means(law, ITERATIONS[case]) for law in ("oracle", "shipped"))
    assert over(found, starved_percent=best["starved_percent"] + 4, reversals=15) == {}
    assert found["mean_actors"] == pytest.approx(best["mean_actors"], rel=0.05)


@pytest.mark.parametrize("case", [name for name in ITERATIONS if name.endswith("lag 0")])
def test_actors_that_take_turns_with_the_learner_stay_near_what_is_needed(runs: Runs, case: str) -> None:
    """Both wait for half of the time, whatever is done."""
    assert over(runs.means("shipped", ITERATIONS[case]), starved_percent=65, blocked_percent=52) == {}


def test_the_same_seed_gives_the_same_run() -> None:
    runs = [simulate(*run_law("shipped", Scenario(seconds=900)), 1) for _ in range(2)]
    assert runs[0] == runs[1]
    assert statistics.mean(runs[0].desired) > 4

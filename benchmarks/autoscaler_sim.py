"""The shipped autoscaler against a simulated job, beside KEDA's and the HPA's laws and one that knows the true rates.

    python -m benchmarks.autoscaler_sim --seeds 10 --picture docs/images/autoscaling.svg

Two simulated hours: the learner speeds up, the environment slows down, a fifth of the actors is evicted. One JSON line a law
(means over the seeds), then the sensitivity to start delay, queue length and an outage of the figures, then faults.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.autoscaling.laws import LAWS, run_law
from benchmarks.autoscaling.picture import draw
from benchmarks.autoscaling.plant import Scenario, Trace, simulate
from benchmarks.common import machine, report

SENSITIVITY: dict[str, Scenario] = {
    "start delay 15 s": Scenario(start_delay_seconds=15),
    "start delay 120 s": Scenario(start_delay_seconds=120),
    "start delay 300 s": Scenario(start_delay_seconds=300),
    "queue of 8": Scenario(queue_items=8),
    "queue of 512": Scenario(queue_items=512),
    "no figures from 1500 to 2400 s": Scenario(outages=((1500, 2399),)),
}

HELD = Scenario(capacity=((0, 70.0),), actor_rate=((0, 1.0),), evictions=(), max_replicas=((0, 40), (3600, 200)))
"""An hour at the maximum, 40 actors where 70 are needed, then free to grow."""

FAULTS: dict[str, Scenario] = {
    "figures ten times as noisy": Scenario(noise=1.0),
    "no figures from 2400 to 3299 s": Scenario(outages=((2400, 3299),)),
    "clock jumps: an hour back, a day ahead, a minute back": Scenario(
        clock_jumps=((1000, -3600.0), (2500, 86_400.0), (4200, -60.0))
    ),
    "half of the actors' figures missing": Scenario(reporting_share=0.5),
    "an hour at the maximum, then freed": HELD,
}

STILL = Scenario(capacity=((0, 70.0),), actor_rate=((0, 1.0),), evictions=(), start_load=0.2)
"""Only what a case changes happens, and 70 actors are needed. An actor that starts takes a fifth of what one that plays takes of
what they share."""

CAPPED: dict[str, Scenario] = {
    "production capped at 30 of 70": replace(STILL, most_produced=((0, 30.0),)),
    "production capped at 60 of 70": replace(STILL, most_produced=((0, 60.0),)),
    "the cap of 30 falls at 3600 s": replace(STILL, most_produced=((0, 30.0), (3600, 100.0))),
    "a cap of 40 comes at 3600 s": replace(STILL, most_produced=((0, 100.0), (3600, 40.0))),
}

LAGGING: dict[str, Scenario] = {
    "policy lag too high from 50 of 70 actors on": replace(STILL, lag_knee=((0, 40.0),)),
    "the same, three times as noisy": replace(STILL, lag_knee=((0, 40.0),), lag_noise=0.3),
    "too high from 50 on, from 3600 s on from 100": replace(STILL, lag_knee=((0, 40.0), (3600, 80.0))),
}

ITERATIONS: dict[str, Scenario] = {
    f"iterations of {items} items, lag {lag}": Scenario(queue_items=items, iteration_lag=lag)
    for items in (16.0, 64.0, 512.0)
    for lag in (1, 0)
}
"""PPO in the plain scenario: 40 to 117 actors are what the learner's rate asks for."""

FIGURES = (
    "starved_percent",
    "blocked_percent",
    "mean_actors",
    "reversals",
    "moves",
    "starts",
    "lag_high_percent",
    "queueing_seconds",
)


class Runs:
    """Simulations of a law in a scenario, one a seed, on all cores."""

    def __init__(self, pool: ProcessPoolExecutor, seeds: Sequence[int]) -> None:
        self._pool, self.seeds = pool, seeds

    def means(self, law: str, scenario: Scenario) -> dict[str, float]:
        """The columns of the table as means over the seeds."""
        rows = [trace.figures() for trace in self._traces(law, scenario)]
        return {name: statistics.mean(row[name] for row in rows) for name in FIGURES}

    def overshoot_percent(self, scenario: Scenario) -> float:
        """How far the shipped law went above what was needed after its maximum was raised; the worst of all seeds."""
        freed = scenario.max_replicas[-1][0]
        traces = self._traces("shipped", scenario)
        return 100 * max(max(trace.desired[freed:]) / trace.needed[-1] - 1 for trace in traces)

    def _traces(self, law: str, scenario: Scenario) -> list[Trace]:
        return list(self._pool.map(_run, *zip(*((law, scenario, seed) for seed in self.seeds), strict=True)))


def _run(law: str, scenario: Scenario, seed: int) -> Trace:
    changed, fresh = run_law(law, scenario)
    return simulate(changed, fresh, seed)


def main() -> None:
    """Run all tables; draw the picture where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1000, help="the law's thresholds were picked on 0 to 19")
    parser.add_argument("--picture", type=Path, help="write the plain scenario, first seed, as SVG")
    options = parser.parse_args()
    report("machine", **machine())
    with ProcessPoolExecutor() as pool:
        _tables(Runs(pool, range(options.first_seed, options.first_seed + options.seeds)))
    if options.picture:
        laws = ("keda_from_60", "hpa_default", "shipped")
        draw(options.picture, {law: (LAWS[law][0], _run(law, Scenario(), options.first_seed)) for law in laws})


def _tables(runs: Runs) -> None:
    seeds = len(runs.seeds)
    for law, (title, _, _) in LAWS.items():
        report("autoscaler", law=title, seeds=seeds, **runs.means(law, Scenario()))
    for name, scenario in SENSITIVITY.items():
        for law in ("hpa_default", "thresholds", "shipped", "oracle"):
            report("autoscaler_sensitivity", case=name, law=LAWS[law][0], seeds=seeds, **runs.means(law, scenario))
    for name, scenario in (CAPPED | LAGGING).items():
        for law in ("shipped", "oracle"):
            report("autoscaler_guard", case=name, law=LAWS[law][0], seeds=seeds, **runs.means(law, scenario))
    for name, scenario in ITERATIONS.items():
        for law in ("shipped", "oracle"):
            report("autoscaler_iterations", case=name, law=LAWS[law][0], seeds=seeds, **runs.means(law, scenario))
    plain = runs.means("shipped", Scenario())
    for name, scenario in FAULTS.items():
        figures = runs.means("shipped", scenario)
        reference = plain
        if scenario is HELD:  # the same job that was never held has another plain figure
            reference = runs.means("shipped", replace(HELD, max_replicas=((0, 200),)))
            figures = {**figures, "overshoot_percent": runs.overshoot_percent(scenario)}
        report("autoscaler_fault", case=name, seeds=seeds, plain_starved_percent=reference["starved_percent"],
               plain_blocked_percent=reference["blocked_percent"], **figures)  # fmt: skip


if __name__ == "__main__":
    main()

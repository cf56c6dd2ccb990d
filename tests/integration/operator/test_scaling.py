"""Actors follow a learner that becomes half as fast and as fast as before again, on real processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.roles.slowdown import LEARNER_DELAY_FILE

from tests.support import slow_game
from tests.support.local_run import LocalRun, assert_nothing_was_lost
from tests.support.paths import IMPORTABLE

PERIOD_SECONDS = 4.0
"""autoscaling.samplePeriodSeconds of slow_game.yaml."""
STAYS_SECONDS = 3 * PERIOD_SECONDS
"""A number that three decisions have left where it was has settled."""
PATIENCE_SECONDS = 150.0
"""How soon it settles is measured by benchmarks/recovery.py; here it only has to."""
FAST, SLOW = 0.06, 0.15
"""Seconds that are added to each update, far more than an update takes."""

pytestmark = [pytest.mark.timeout(700), pytest.mark.long]


def settled(run: LocalRun, wanted: Callable[[int], bool], why: str) -> int:
    """Wait until the desired number of actors is a ``wanted`` one and has stayed within one of it; answers the last."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    first, since = -1, time.monotonic()
    while True:
        assert run.process.poll() is None, run.output
        now, number = time.monotonic(), run.job_status.autoscaling.desired_replicas
        if not wanted(number) or abs(number - first) > 1:
            first, since = number, now
        elif now - since >= STAYS_SECONDS:
            return number
        assert now < deadline, f"{why}: it stands at {number}; {run.job_status.autoscaling.last_decision}"
        time.sleep(0.25)


def test_actors_follow_the_learner_both_ways(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    delay = tmp_path / "delay"
    delay.write_text(str(FAST))
    environment = IMPORTABLE | {LEARNER_DELAY_FILE: str(delay)}
    run = local_run("--max-actors", "6", job=slow_game.JOB, environment=environment)
    run.until(lambda: run.reason("ScalingActive") == "ValidMetricFound", 120, "a first decision")
    fast = settled(run, lambda number: number > 1, "several actors for a fast learner")
    delay.write_text(str(SLOW))
    slow = settled(run, lambda number: number < fast, f"fewer than {fast} for a slow one")
    delay.write_text(str(FAST))
    again = settled(run, lambda number: number > slow and abs(number - fast) <= 1, f"about {fast} again")
    print(f"{fast} actors, throttled {slow}, released {again}")
    assert run.interrupt() == 130
    left = [path.name.removesuffix(".final.json") for path in (run.run_dir / "roles").glob("actor-*.final.json")]
    assert_nothing_was_lost(run, *left)

"""Actors follow a learner that becomes half as fast and as fast as before again, on real processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import LocalRun, assert_nothing_was_lost
from rljob.cli.slowdown import LEARNER_DELAY_FILE

HERE = Path(__file__).parent
PERIOD_SECONDS = 4.0
"""autoscaling.samplePeriodSeconds of slow_game.yaml."""
LATE_SECONDS = 4.0
"""The learner's figures are over two seconds, and a status is written once a second."""
SETTLED_SECONDS = 3 * PERIOD_SECONDS + LATE_SECONDS
"""Three decisions."""
WATCHED_SECONDS = SETTLED_SECONDS + 2 * PERIOD_SECONDS
"""Two decisions more, in which the number has to stay."""
FAST, SLOW = 0.06, 0.15
"""Seconds that are added to each update, far more than an update takes."""

ROUNDS = 3
"""A machine that is taken away for seconds delays a decision; a law that is slow is slow every time."""

pytestmark = pytest.mark.timeout(400)


def follow(run: LocalRun, seconds: float) -> list[tuple[float, int]]:
    """(seconds from now, desired actors) for so long."""
    started, seen = time.monotonic(), []
    while (elapsed := time.monotonic() - started) < seconds:
        seen.append((elapsed, run.job_status.autoscaling.desired_replicas))
        assert run.process.poll() is None, run.output
        time.sleep(0.25)
    return seen


def settled_after(seen: list[tuple[float, int]]) -> tuple[int, float]:
    """(the number at the end, after how many seconds it was within one of it for good)."""
    final = seen[-1][1]
    away = [elapsed for elapsed, number in seen if abs(number - final) > 1]
    return final, max(away, default=0.0)


def test_actors_follow_the_learner_both_ways(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    delay = tmp_path / "delay"
    delay.write_text(str(FAST))
    environment = {
        LEARNER_DELAY_FILE: str(delay),
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
    }
    run = local_run("--max-actors", "6", job=HERE / "slow_game.yaml", environment=environment)
    run.until(lambda: run.reason("ScalingActive") == "ValidMetricFound", 120, "a first decision")
    fast, _ = settled_after(follow(run, WATCHED_SECONDS))
    for _ in range(ROUNDS):
        delay.write_text(str(SLOW))
        slow, down_seconds = settled_after(follow(run, WATCHED_SECONDS))
        delay.write_text(str(FAST))
        again, up_seconds = settled_after(follow(run, WATCHED_SECONDS))
        print(f"{fast} actors, throttled {slow} after {down_seconds:.1f} s, released {again} after {up_seconds:.1f} s")
        print(run.job_status.autoscaling.last_decision)
        assert slow < fast
        assert again > slow
        assert abs(again - fast) <= 1
        if max(down_seconds, up_seconds) <= SETTLED_SECONDS:
            break
    else:
        pytest.fail(f"in none of {ROUNDS} rounds had the actors settled within {SETTLED_SECONDS:g} s, both ways")
    assert run.interrupt() == 130
    left = [path.name.removesuffix(".final.json") for path in (run.run_dir / "roles").glob("actor-*.final.json")]
    assert_nothing_was_lost(run, *left)

"""Actors follow a learner that becomes half as fast and as fast as before again, on real processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
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
"""At most. A late round is repeated only where the machine itself was away, as the host's own count says."""
STOLEN_SHARE = 0.1
"""Of the processors' time in a round: what the host may give to others before a late decision says nothing about the law."""

pytestmark = pytest.mark.timeout(400)


def follow(run: LocalRun, seconds: float) -> list[tuple[float, int]]:
    """(seconds from now, desired actors) for so long."""
    started, seen = time.monotonic(), []
    while (elapsed := time.monotonic() - started) < seconds:
        seen.append((elapsed, run.job_status.autoscaling.desired_replicas))
        assert run.process.poll() is None, run.output
        time.sleep(0.25)
    return seen


def stolen_share(before: Any) -> float:
    """What a virtual machine's host gave to others since ``before`` (of psutil.cpu_times), as a share of the processors' time."""
    now = psutil.cpu_times()
    return (now.steal - before.steal) / max(sum(now) - sum(before), 1e-9)


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
    for number in range(1, ROUNDS + 1):
        before = psutil.cpu_times()
        delay.write_text(str(SLOW))
        slow, down_seconds = settled_after(follow(run, WATCHED_SECONDS))
        delay.write_text(str(FAST))
        again, up_seconds = settled_after(follow(run, WATCHED_SECONDS))
        stolen = stolen_share(before)
        print(f"{fast} actors, throttled {slow} after {down_seconds:.1f} s, released {again} after {up_seconds:.1f} s")
        print(run.job_status.autoscaling.last_decision, f"{stolen:.0%} taken by the host")
        assert slow < fast
        assert again > slow
        assert abs(again - fast) <= 1
        if number == ROUNDS or stolen <= STOLEN_SHARE or max(down_seconds, up_seconds) <= SETTLED_SECONDS:
            break
    assert down_seconds <= SETTLED_SECONDS
    assert up_seconds <= SETTLED_SECONDS
    assert run.interrupt() == 130
    left = [path.name.removesuffix(".final.json") for path in (run.run_dir / "roles").glob("actor-*.final.json")]
    assert_nothing_was_lost(run, *left)

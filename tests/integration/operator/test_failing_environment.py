"""`rljob run` with a user's environment that raises and stalls in the middle of play: training goes on, nothing hangs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES, IMPORTABLE

pytestmark = [pytest.mark.timeout(180), pytest.mark.long]


def failing(crash: float, stall: float, allowed: int) -> list[str]:
    settings = {
        "id": "benchmarks.failing_cart_pole:make",
        "kwargs": json.dumps({"crash": crash, "stall": stall}),
        "maxFailuresPer10000Steps": str(allowed),
    }
    return [word for key, value in settings.items() for word in ("--set", f"spec.environment.{key}={value}")]


def test_training_goes_on_around_failing_environments(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(
        *ENDLESS, *failing(crash=5e-3, stall=2e-4, allowed=200), "--set", "spec.successPolicy.rawFrames=6000",
        job=EXAMPLES / "cartpole-impala.yaml", environment=IMPORTABLE,
    )  # fmt: skip
    assert run.finish(150) == 0, run.output + run.logs()
    final = run.final("actor-0")
    assert final["environment_failures"] >= 10, "30 are expected"
    assert final["steps"] == final["produced"] + final["cut_steps"]
    assert final["produced"] == final["acknowledged"] + final["unacknowledged"]
    # An unroll is lost with a failure in it, and what was under way at the end; no more.
    assert final["cut_steps"] <= 20 * (final["environment_failures"] + 16)
    assert run.job_status.restarts.counted == run.job_status.restarts.ignored == 0, "no process ended for it"
    words = (run.run_dir / "logs" / "actor-0.log").read_text()
    assert "failed in step(): failing_cart_pole.py:" in words
    assert ", in step: RuntimeError: the simulator has lost its licence, in step " in words
    assert " of the episode; begun anew (failure 1 " in words

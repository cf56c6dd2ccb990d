"""`rljob run` of SAC: an update a step, also after each role was killed, and a policy that travels without its critics."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import rljob

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]

STEPS, AT_RANDOM, BATCH = 12_000, 500, 32
JOB = EXAMPLES / "pendulum-sac.yaml"
SMALL = {
    "algorithm.sac": f"{{batchSize: {BATCH}, hiddenUnits: 16}}",
    "replay.rateLimiter": f"{{minSize: {AT_RANDOM}, errorBuffer: {2 * BATCH * 10}}}",  # as narrow as it may be
    "successPolicy.rawFrames": str(STEPS),
    "checkpoint.intervalSeconds": "5",
}
OPTIONS = [word for path, value in SMALL.items() for word in ("--set", f"spec.{path}={value}")]


def updates_a_step(run: LocalRun) -> float:
    """What the replay has given for each step that it took, beyond those before the first update."""
    shard = run.status("replay-0")
    drawn, stored = shard["sampled_total"], shard["inserted_total"]
    return float(drawn / BATCH / max(1, stored - AT_RANDOM))


def test_an_update_a_step_whoever_is_killed(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS, *OPTIONS, job=JOB)
    run.until_learning(1000)
    for name in ("learner", "actor-0", "replay-0"):
        before = run.status("learner").get("updates", 0)
        run.kill(name)
        run.until(lambda before=before: run.status("learner").get("updates", 0) > before + 1000, 120, f"{name} again")
        assert updates_a_step(run) == pytest.approx(1.0, rel=0.01)
    assert run.finish(200) == 0, run.output + run.logs()
    assert json.loads((run.run_dir / "outcome.json").read_text())["reason"] == "StepBudgetReached"


def test_a_policy_is_loaded_played_and_scored_without_critics(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(
        *OPTIONS, "--set", "spec.successPolicy.targetReturn=", "--set", "spec.evaluator.episodes=3", job=JOB
    )
    run.until((run.run_dir / "checkpoints" / "best" / "manifest.json").exists, 120, "a judged policy")
    run.interrupt()
    policy = rljob.load_policy(run.run_dir)
    names = set(policy.stored.module.state_dict())
    assert not any("critic" in name or "temperature" in name for name in names)
    actions = policy.act(np.zeros((3, *policy.observation_shape), np.float32))
    assert actions.shape == (3, 1)
    assert np.abs(actions).max() <= 2.0
    code, printed = run.verb("eval", str(run.run_dir), "--episodes", "2")
    assert (code, "mean return" in printed) == (0, True)

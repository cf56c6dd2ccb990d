"""A user's environment that shows colours, with ``network: Auto``: real roles learn from it by convolutions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.policy import load_policy
from rljob.roles.actor import run_actor
from rljob.roles.learner import run_learner

from tests.support.jobs import job_of
from tests.support.role_threads import over_ipc

REPLAY: dict[str, Any] = {
    "capacity": 2000,
    "rateLimiter": {"samplesPerInsert": 2, "minSize": 200, "errorBuffer": 400},
}
SMALL = {"batchSize": 16, "hiddenUnits": 16}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "ApeXDQN": {
        "algorithm": {"type": "ApeXDQN", "apeXDQN": {"chunkLength": 10, "publishInterval": 2, **SMALL}},
        "replay": REPLAY,
    },
    "IMPALA": {
        "algorithm": {"type": "IMPALA", "impala": {"unrollLength": 5, "unrollQueue": {"capacity": 32}, **SMALL}},
    },
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_colours_are_learned_from_by_convolutions(tmp_path: Path, name: str) -> None:
    spec: dict[str, Any] = {
        "environment": {"id": "tests.support.toys:Colours", "frameStack": 2, "centreInput": True, "backend": "Sync"},
        "actors": {"replicas": 1, "envsPerActor": 2},
        **ALGORITHMS[name],
    }
    with over_ipc(job_of(spec), tmp_path, replay=name == "ApeXDQN") as run:
        run.start(run_learner, "learner")
        run.start(run_actor, "actor-0")
        run.until(lambda f: f.get("updates", 0) > 5 and f.get("policy_lag_updates") is not None, "updates", 100)
        run.stop("learner")
    saved = checkpoint.latest_valid(tmp_path / "checkpoints")
    assert saved is not None
    assert saved.tensors["online.convolutions.0.weight"].shape == (32, 2 * 3, 8, 8)
    assert saved.tensors["online.mean"].shape == (64, 64, 3)
    assert load_policy(tmp_path).spec.columns[0].shape == (64, 64, 3)

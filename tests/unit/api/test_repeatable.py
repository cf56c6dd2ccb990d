"""The job of `rljob run --deterministic`: what of it is set, and which jobs can't be had twice."""

from typing import Any

import pytest
from rljob.api import parse_job
from rljob.api.load import repeatable
from rljob.api.problems import ManifestError


def written(**spec: Any) -> dict[str, Any]:
    job = {"environment": {"id": "Pendulum-v1"}, "successPolicy": {"rawFrames": 1000}, **spec}
    return {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "again"}, "spec": job}


@pytest.mark.parametrize("kind", ["PPO", "SAC"])
def test_one_actor_and_the_learner_take_turns(kind: str) -> None:
    job = written(algorithm={"type": kind, "compile": True}, actors={"replicas": 2, "precision": "Auto"})
    before = {**job}
    spec = parse_job(repeatable(job)).spec
    assert job == before
    assert (spec.requested_actors, spec.actors.precision, spec.learner.accelerator.count) == (1, "Plain", 0)
    parameters = spec.algorithm.parameters
    assert (parameters.precision, parameters.compile) == ("Plain", False)
    assert getattr(parameters, "max_policy_lag", parameters.prefetch_batches) == 0
    assert kind == "PPO" or (spec.actors.envs_per_actor, spec.required_replay.shards) == (1, 1)


def test_a_preset_gives_way() -> None:
    job = written(preset="PongPPO", presetWithout=["successPolicy.targetReturn"])
    job["spec"].pop("environment")
    spec = parse_job(repeatable(job)).spec
    assert spec.algorithm.parameters.max_policy_lag == 0
    assert spec.learner.resources.requests["cpu"] == "1"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": {"type": "IMPALA"}}, "allowed: PPO or SAC"),
        ({"algorithm": {"type": "ApeXDQN"}, "environment": {"id": "CartPole-v1"}}, "allowed: PPO or SAC"),
        ({"successPolicy": {}}, "rawFrames alone"),
        ({"successPolicy": {"rawFrames": 9, "targetReturn": {"value": 1}}}, "rawFrames alone"),
        ({"environment": {"id": "Pendulum-v1", "unknown": 1}}, "unknown"),
    ],
)
def test_what_cannot_be_had_twice_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        repeatable(written(**changes))

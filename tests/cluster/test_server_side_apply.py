"""Server-side apply: several owners of one job, each with fields and entries of its own."""

from __future__ import annotations

from typing import Any

import pytest
from rljob.api import ImpalaParameters, parse_job

from tests.cluster import jobs
from tests.cluster.control_plane import ControlPlane
from tests.unit.api.bad_manifests import BASE, PRESET
from tests.unit.api.written import document

APPLY = "application/apply-patch+yaml"
SUSPENDED = ["spec.suspend=true", "spec.checkpoint.onSuspend=Skip"]


def apply(
    cluster: ControlPlane, owner: str, spec: dict[str, Any], *, force: bool = False, status: bool = False
) -> jobs.Answer:
    part = "status" if status else "spec"
    given = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "pong"}, part: spec}
    path = f"{jobs.JOBS}/pong{'/status' if status else ''}?fieldManager={owner}&{jobs.STRICT}"
    return jobs.Answer(*cluster.request("PATCH", f"{path}&force={str(force).lower()}", given, APPLY))


def by_name(entries: list[dict[str, Any]], key: str = "name") -> dict[str, dict[str, Any]]:
    return {entry[key]: entry for entry in entries}


@pytest.fixture
def pong(cluster: ControlPlane) -> dict[str, Any]:
    """A job made by the owner `user`, suspended so that its parameters may change."""
    spec: dict[str, Any] = document(BASE, SUSPENDED)["spec"]
    apply(cluster, "user", spec).stored()
    return spec


def test_one_leaf_is_changed_without_its_neighbours(cluster: ControlPlane) -> None:
    """What a sweep or a population does, beside the person who wrote the job."""
    spec = document(PRESET, [*SUSPENDED, "spec.algorithm.impala={entropyCost: 0.005, unrollQueue: {capacity: 32}}"])[
        "spec"
    ]
    apply(cluster, "user", spec).stored()
    for rate in (3e-4, 5e-4):
        swept = apply(cluster, "sweep", {"algorithm": {"impala": {"learningRate": rate}}}).stored()
        impala = swept["spec"]["algorithm"]["impala"]
        assert impala == {"entropyCost": 0.005, "unrollQueue": {"capacity": 32}, "learningRate": rate}
        in_force = parse_job(swept).spec.algorithm.parameters_as(ImpalaParameters)
        assert (in_force.learning_rate, in_force.entropy_cost, in_force.batch_size) == (rate, 0.005, 16)
    again = apply(cluster, "user", spec | {"algorithm": {"impala": {"entropyCost": 0.01}}}).stored()
    assert again["spec"]["algorithm"]["impala"] == {"entropyCost": 0.01, "learningRate": 5e-4}, "each its own"
    ended = apply(cluster, "sweep", {}).stored()
    assert ended["spec"]["algorithm"]["impala"] == {"entropyCost": 0.01}, "the preset's rate is in force again"


def test_the_same_leaf_is_a_conflict(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    smaller = {"algorithm": {"apeXDQN": {"batchSize": 64}}}
    refused = apply(cluster, "tuner", smaller)
    assert refused.code == 409
    assert ".spec.algorithm.apeXDQN.batchSize" in refused.message
    forced = apply(cluster, "tuner", smaller, force=True).stored()
    assert forced["spec"]["algorithm"]["apeXDQN"] == {"gamma": 0.99, "batchSize": 64}


def test_rules_of_failures_are_merged_by_name(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    policy = {"failurePolicy": {"rules": [{"name": "evicted", "onPodConditions": [{"type": "X"}], "action": "Ignore"}]}}
    applied = apply(cluster, "platform", policy).stored()
    assert set(by_name(applied["spec"]["failurePolicy"]["rules"])) == {"bad-config", "evicted"}


def test_a_partial_owner_cannot_break_a_rule(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    refused = apply(cluster, "tuner", {"autoscaling": {"minReplicas": 5, "maxReplicas": 4}})
    assert refused.code == 422
    assert "spec.autoscaling.minReplicas" in refused.message


def test_a_partial_owner_cannot_add_a_member_of_another_algorithm(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    refused = apply(cluster, "tuner", {"algorithm": {"impala": {"gamma": 0.9}}})
    assert refused.code == 422
    assert "spec.algorithm: Forbidden: allowed: only the block of the algorithm's own type" in refused.message


def test_conditions_of_two_writers_lie_side_by_side(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    def condition(kind: str) -> dict[str, Any]:
        times = {"lastTransitionTime": "2026-11-21T16:05:00.250Z"}
        return {"conditions": [{"type": kind, "status": "True", "reason": "Checked", "message": "", **times}]}

    apply(cluster, "operator", condition("Ready"), status=True).stored()
    applied = apply(cluster, "queue", condition("QuotaReserved"), status=True).stored()
    assert set(by_name(applied["status"]["conditions"], "type")) == {"Ready", "QuotaReserved"}

"""Server-side apply: two owners of one job, each with entries of their own in its keyed lists."""

from __future__ import annotations

from typing import Any

import jobs
import pytest
from bad_manifests import BASE
from control_plane import ControlPlane
from written import document

APPLY = "application/apply-patch+yaml"


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
    spec: dict[str, Any] = document(BASE, ["spec.suspend=true", "spec.checkpoint.onSuspend=Skip"])["spec"]
    made = apply(cluster, "user", spec)
    assert made.accepted, made.message
    return spec


def test_parameters_of_two_owners_lie_side_by_side(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    tuner = {"algorithm": {"parameters": [{"name": "learningRate", "value": "0.0002"}]}}
    applied = apply(cluster, "tuner", tuner)
    assert applied.accepted, applied.message
    parameters = by_name(applied.document["spec"]["algorithm"]["parameters"])
    assert set(parameters) == {"gamma", "batchSize", "learningRate"}
    again = apply(cluster, "user", pong)
    assert set(by_name(again.document["spec"]["algorithm"]["parameters"])) == set(parameters), (
        "each keeps what is theirs"
    )
    removed = apply(cluster, "tuner", {"algorithm": {"parameters": []}})
    assert set(by_name(removed.document["spec"]["algorithm"]["parameters"])) == {"gamma", "batchSize"}


def test_the_same_parameter_is_a_conflict(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    gamma = {"algorithm": {"parameters": [{"name": "gamma", "value": "0.9"}]}}
    refused = apply(cluster, "tuner", gamma)
    assert refused.code == 409
    assert 'k:{"name":"gamma"}' in str(refused.document) or 'name="gamma"' in refused.message, refused.message
    forced = apply(cluster, "tuner", gamma, force=True)
    assert by_name(forced.document["spec"]["algorithm"]["parameters"])["gamma"]["value"] == "0.9"


def test_rules_of_failures_are_merged_by_name(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    policy = {"failurePolicy": {"rules": [{"name": "evicted", "onPodConditions": [{"type": "X"}], "action": "Ignore"}]}}
    applied = apply(cluster, "platform", policy)
    assert applied.accepted, applied.message
    assert set(by_name(applied.document["spec"]["failurePolicy"]["rules"])) == {"bad-config", "evicted"}


def test_a_partial_owner_cannot_break_a_rule(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    refused = apply(cluster, "tuner", {"replay": {"rateLimiter": {"errorBuffer": "1"}}})
    assert refused.code == 422
    assert "spec.replay.rateLimiter" in refused.message


def test_conditions_of_two_writers_lie_side_by_side(cluster: ControlPlane, pong: dict[str, Any]) -> None:
    def condition(kind: str) -> dict[str, Any]:
        times = {"lastTransitionTime": "2026-11-21T16:05:00.250Z"}
        return {"conditions": [{"type": kind, "status": "True", "reason": "Checked", "message": "", **times}]}

    assert apply(cluster, "operator", condition("Ready"), status=True).accepted
    applied = apply(cluster, "queue", condition("QuotaReserved"), status=True)
    assert applied.accepted, applied.message
    assert set(by_name(applied.document["status"]["conditions"], "type")) == {"Ready", "QuotaReserved"}

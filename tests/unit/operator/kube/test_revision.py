"""A revision changes with what the user wrote for a role's pods, and with nothing else."""

from typing import Any

import pytest
from rljob.api import read_manifest
from rljob_operator.core.member import Role
from rljob_operator.kube.render.rendering import revision

from .rendered import EXAMPLES, PONG

ALL = frozenset(Role)
A, B = "{name: A, value: a}", "{name: B, value: b}"


def manifest(*sets: str) -> dict[str, Any]:
    return read_manifest(PONG, sets)


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[Role]:
    return {role for role in Role if revision(before, role) != revision(after, role)}


@pytest.mark.parametrize(
    ("change", "roles"),
    [
        ("spec.image=rl:2", ALL),
        ("spec.algorithm.gamma=0.9", ALL),
        ("spec.actors.envsPerActor=4", ALL),
        ("spec.actors.resources.requests.cpu=2", {Role.ACTOR}),
        ("spec.actors.spot=true", {Role.ACTOR}),
        ("spec.learner.accelerator.count=1", {Role.LEARNER}),
        ("spec.replay.redis.image=redis:8", {Role.REPLAY}),
        ("spec.evaluator.podTemplate={spec: {dnsPolicy: Default}}", {Role.EVALUATOR}),
        ("spec.inference.image=rl:3", {Role.INFERENCE}),
        ("spec.actors.replicas=7", set()),
        ("spec.backoffLimit=7", set()),
        ("spec.suspend=true", set()),
        ("spec.successPolicy.rawFrames=7", set()),
        ("spec.autoscaling.mode=Internal", set()),
        ("metadata.labels={a: b}", set()),
        ("spec.learner={image: null}", set()),
    ],
)
def test_a_change_makes_new_pods_of_the_roles_that_it_is_about(change: str, roles: set[Role]) -> None:
    assert changed(manifest(), manifest(change)) == roles


def test_the_order_of_named_entries_does_not_matter_and_that_of_others_does() -> None:
    assert not changed(manifest(f"spec.actors.env=[{A}, {B}]"), manifest(f"spec.actors.env=[{B}, {A}]"))
    assert changed(manifest("spec.environment.actions=[0, 2]"), manifest("spec.environment.actions=[2, 0]")) == ALL


def test_what_a_release_fills_in_is_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Presets and defaults of another release of the operator restart nothing."""
    written = read_manifest(EXAMPLES / "pong-apex.yaml")
    stored = {**written, "metadata": {**written["metadata"], "uid": "1", "generation": 9}, "status": {"phase": "x"}}
    before = {role: revision(written, role) for role in Role}
    monkeypatch.setattr("rljob.api.presets.PRESETS", {})
    for document in (written, stored):
        assert {role: revision(document, role) for role in Role} == before

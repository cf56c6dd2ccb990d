"""What a role has of a PodSpec: kept as it is written, merged by its keys, and not changed while the job runs."""

from typing import Any

import pytest
from rljob.api import parse_job, transition_problems

from tests.cluster import jobs
from tests.cluster.control_plane import ControlPlane
from tests.unit.api.bad_manifests import BASE, document
from tests.unit.api.changed_manifests import rule_of, said_by_the_server

APPLY = "application/apply-patch+yaml"
NODE = {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def with_role(**fields: Any) -> dict[str, Any]:
    """A job whose actors have ``fields``."""
    given = document(BASE)
    given["spec"]["actors"] = {**given["spec"].get("actors", {}), **fields}
    return given


def test_what_no_schema_knows_is_kept(cluster: ControlPlane) -> None:
    written = {
        "env": [{"name": "A", "value": "a"}, {"name": "NODE", **NODE}],
        "tolerations": [{"operator": "Exists", "tolerationSeconds": 30}],
        "podTemplate": {
            "spec": {
                "hostNetwork": None,
                "affinity": {"nodeAffinity": {}},
                "containers": [{"name": "actor", "tty": True}],
            }
        },
    }
    answer = jobs.create(cluster, with_role(**written)).stored()
    assert {name: answer["spec"]["actors"][name] for name in written} == written


CHANGES: list[tuple[str, Any, Any]] = [
    ("env", [{"name": "A", "value": "a"}], [{"name": "A", "value": "b"}]),
    ("env", [{"name": "A", "value": "a"}], None),
    ("env", [{"name": "A", **NODE}], [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.hostIP"}}}]),
    ("tolerations", [{"key": "a"}], [{"key": "b"}]),
    ("tolerations", [{"key": "a"}], [{"key": "a", "effect": "NoSchedule"}]),
    ("podTemplate", {"spec": {"hostPID": True}}, {"spec": {"hostIPC": True}}),
]
ONLY_THE_CONTROLLER_SEES: list[tuple[str, Any, Any]] = [
    ("env", [{"name": "A", "value": "a"}], [{"name": "A", **NODE}]),
    ("tolerations", [{"key": "a"}], [{"operator": "Exists"}]),
    ("podTemplate", {"spec": {}}, {"metadata": {}}),
]
"""A key in the place of another (`rljob.api.cel.NOT_IN_CEL`)."""


def ids(cases: list[tuple[str, Any, Any]]) -> list[str]:
    return [f"{field} {before} {after}"[:60] for field, before, after in cases]


def problems(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What the controller says of the change."""
    return [problem.path for problem in transition_problems(parse_job(before), parse_job(after))]


@pytest.mark.parametrize(("field", "before", "after"), CHANGES, ids=ids(CHANGES))
def test_none_of_it_changes_while_the_job_runs(cluster: ControlPlane, field: str, before: Any, after: Any) -> None:
    old, new = with_role(**{field: before}), with_role(**({} if after is None else {field: after}))
    jobs.create(cluster, old, dry_run=False).stored()
    answer = jobs.replace(cluster, new)
    assert not answer.accepted
    assert answer.names("spec.actors", said_by_the_server(rule_of(f"actors.{field}"))[1]), answer.message
    assert [path for path in problems(old, new) if path.startswith(f"spec.actors.{field}")]
    new["spec"] |= {"suspend": True}
    jobs.replace(cluster, new).stored()


@pytest.mark.parametrize(("field", "before", "after"), ONLY_THE_CONTROLLER_SEES, ids=ids(ONLY_THE_CONTROLLER_SEES))
def test_what_only_the_controller_sees(cluster: ControlPlane, field: str, before: Any, after: Any) -> None:
    """If servers begin to see it, the list of exceptions is out of date."""
    old, new = with_role(**{field: before}), with_role(**{field: after})
    jobs.create(cluster, old, dry_run=False).stored()
    jobs.replace(cluster, new).stored()
    assert [path for path in problems(old, new) if path.startswith(f"spec.actors.{field}")]


def test_the_order_of_what_has_names_is_no_change(cluster: ControlPlane) -> None:
    entries = [{"name": "a", "value": "a"}, {"name": "b", "value": "b"}]
    jobs.create(cluster, with_role(env=entries), dry_run=False).stored()
    jobs.replace(cluster, with_role(env=entries[::-1])).stored()


def test_variables_of_two_owners_lie_side_by_side(cluster: ControlPlane) -> None:
    def apply(owner: str, value: str) -> jobs.Answer:
        role = {"env": [{"name": owner, "value": value}]}
        spec = with_role()["spec"] | {"suspend": True, "actors": role}
        given = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "pong"}, "spec": spec}
        return jobs.Answer(*cluster.request("PATCH", f"{jobs.JOBS}/pong?fieldManager={owner}&force=true", given, APPLY))

    apply("one", "1").stored()
    env = apply("two", "2").stored()["spec"]["actors"]["env"]
    assert sorted((each["name"], each["value"]) for each in env) == [("one", "1"), ("two", "2")]

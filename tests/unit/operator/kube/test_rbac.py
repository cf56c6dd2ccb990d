"""The operator's rights: no wildcard, no reading of what it has no use for, and a scope without any ClusterRole."""

from __future__ import annotations

import pytest
from rljob_operator.kube.process import rbac

from tests.support.operator_roles import role_objects

MADE = {"pods", "secrets", "configmaps", "services", "serviceaccounts", "persistentvolumeclaims", "networkpolicies"}


def granted(resource: str) -> set[str]:
    return {verb for grant in rbac.TABLE if resource in grant.resources for verb in grant.verbs}


def test_nothing_is_granted_by_a_star_or_twice() -> None:
    rows = [
        (grant.group, resource, verb) for grant in rbac.TABLE for resource in grant.resources for verb in grant.verbs
    ]
    assert not [row for row in rows if "*" in "".join(row)]
    assert len(set(rows)) == len(rows)
    assert all(grant.why for grant in rbac.TABLE)


def test_what_is_made_may_be_made_and_strangers_secrets_are_not_listed() -> None:
    assert all("create" in granted(resource) for resource in MADE)
    assert granted("secrets") == {"get", "create"}
    assert "update" not in granted("rljobs")
    assert "patch" not in granted("rlexperiments"), (
        "the operator writes specs of the runs that it has made, and no others"
    )


@pytest.mark.parametrize("watched", [(), ("team-a",), ("team-a", "team-b")])
def test_scopes(watched: tuple[str, ...]) -> None:
    found = role_objects("rljob-operator", "rljob-system", watched)
    places = {
        (each["kind"], each["metadata"].get("namespace")) for each in found if not each["kind"].endswith("Binding")
    }
    of_jobs = {("Role", name) for name in watched} or {("ClusterRole", None)}
    assert places == {("Role", "rljob-system")} | of_jobs
    for role, binding in zip(found[::2], found[1::2], strict=True):
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["roleRef"]["kind"] == role["kind"]
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "rljob-operator", "namespace": "rljob-system"}
        ]


def test_nodes_are_read_only_where_all_namespaces_are_looked_after() -> None:
    def reads_nodes(*watched: str) -> bool:
        roles = role_objects("a", "b", watched)
        return any("nodes" in rule["resources"] for each in roles for rule in each.get("rules", ()))

    assert (reads_nodes(), reads_nodes("team-a")) == (True, False)


def test_pods_are_reached_through_the_server_only_from_outside() -> None:
    def proxied(outside: bool) -> bool:
        roles = role_objects("a", "b", outside=outside)
        return any("pods/proxy" in rule["resources"] for each in roles for rule in each.get("rules", ()))

    assert (proxied(True), proxied(False)) == (True, False)

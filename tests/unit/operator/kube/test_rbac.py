"""The operator's rights: no wildcard, no reading of what it has no use for, and a scope without any ClusterRole."""

from typing import Any

import pytest
from rljob_operator.kube.process import rbac

from tests.support.operator_roles import role_objects

MADE = {"pods", "secrets", "configmaps", "services", "persistentvolumeclaims", "networkpolicies"}


def granted(resource: str) -> set[str]:
    return {verb for grant in rbac.TABLE if resource in grant.resources for verb in grant.verbs}


def test_nothing_is_granted_by_a_star_or_twice() -> None:
    rows = [
        (grant.group, resource, verb) for grant in rbac.TABLE for resource in grant.resources for verb in grant.verbs
    ]
    assert ([row for row in rows if "*" in "".join(row)], len(set(rows))) == ([], len(rows))
    assert all(grant.why for grant in rbac.TABLE)


def test_what_is_made_may_be_made_and_strangers_secrets_are_not_listed() -> None:
    assert all("create" in granted(resource) for resource in MADE)
    assert granted("secrets") == {"get", "create"}
    # The operator writes specs of the runs that it has made, and no others.
    assert ("update" in granted("rljobs"), "patch" in granted("rlexperiments")) == (False, False)


@pytest.mark.parametrize("watched", [(), ("team-a",), ("team-a", "team-b")])
def test_scopes(watched: tuple[str, ...]) -> None:
    found = role_objects("rljob-operator", "rljob-system", watched)
    places = {
        (each["kind"], each["metadata"].get("namespace")) for each in found if not each["kind"].endswith("Binding")
    }
    of_jobs = {("Role", name) for name in watched} or {("ClusterRole", None)}
    assert places == {("Role", "rljob-system")} | of_jobs
    account = {"kind": "ServiceAccount", "name": "rljob-operator", "namespace": "rljob-system"}
    for role, binding in zip(found[::2], found[1::2], strict=True):
        of = binding["roleRef"]
        assert (of["name"], of["kind"], binding["subjects"]) == (role["metadata"]["name"], role["kind"], [account])


@pytest.mark.parametrize(
    ("resource", "options", "granted"),
    [
        ("nodes", {}, True),
        ("nodes", {"watched": ("team-a",)}, False),  # only where all namespaces are looked after
        ("pods/proxy", {"outside": True}, True),
        ("pods/proxy", {"outside": False}, False),  # they are reached through the server only from outside
    ],
)
def test_what_is_granted_follows_from_where_the_operator_runs(
    resource: str, options: dict[str, Any], granted: bool
) -> None:
    roles = role_objects("a", "b", **options)
    assert any(resource in rule["resources"] for each in roles for rule in each.get("rules", ())) == granted

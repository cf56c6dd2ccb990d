"""What the verbs say when a cluster refuses: one line with what would be right, and an exit code that tells scripts."""

from pathlib import Path
from typing import Any

import pytest
from rljob_operator.kube.apiserver.access import NoAccess
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import Resource
from rljob_operator.kube.process.run import check_rights
from rljob_operator.verbs import cluster_jobs

from tests.cluster.control_plane import connected
from tests.cluster.policies import give_rights
from tests.cluster.terminal import User, changed_kubeconfig, said, status
from tests.support.ports import free_ports
from tests.support.waiting import eventually


def test_edits_that_break_a_rule_are_refused_in_the_rules_words(user: User) -> None:
    user.has("pong")
    before = user.stored("pong")
    assert "spec.actors.replicas" in user.refused(2, "scale", "pong", "0")
    assert "allowed: a run or job, and the number of actors" in user.refused(2, "scale", "pong")
    assert user.stored("pong") == before


def test_a_job_that_has_ended_is_not_changed(user: User) -> None:
    user.has("pong", known=status(conditions=[said("Complete", "True", "TargetReturnReached", "mean 500")]))
    for words in (("suspend", "pong"), ("scale", "pong", "3"), ("checkpoint", "pong"), ("resume", "pong")):
        assert "has ended and can no longer change: Complete (TargetReturnReached): mean 500" in user.refused(2, *words)
    assert user.sees("stop", "pong") == f"{user.namespace}/pong: it has ended; nothing runs\n"


@pytest.mark.parametrize("verb", ["get", "top", "why", "logs", "suspend", "resume", "checkpoint", "stop"])
def test_a_job_that_is_not_there(user: User, other_namespace: str, verb: str) -> None:
    name = f"lonely-{verb}"  # jobs of other tests are in other namespaces, and are named too
    assert user.refused(2, verb, name) == f"there is no job {name} in namespace {user.namespace}, nor any other"
    user.has(f"{name}-2")
    assert user.refused(2, verb, name).endswith(f"; did you mean {name}-2?")
    User(user.cluster, other_namespace, user.kubeconfig).has(name)
    assert user.refused(2, verb, name).endswith(f"; there is one in {other_namespace}: -n {other_namespace}")
    if verb != "get":
        assert "name is meant here" in user.refused(2, verb, "runs/pong-2026")


def test_several_jobs_and_no_name(user: User) -> None:
    assert user.refused(2, "why").endswith("there is none")
    user.has("pong")
    user.has("breakout")
    assert user.refused(2, "why").endswith("there are: breakout, pong")
    assert user.refused(2, "scale", "3").endswith("there are: breakout, pong")


def test_a_right_that_is_missing_is_named(user: User, tmp_path: Path) -> None:
    user.has("pong")
    token = user.cluster.token(user.namespace, "guest")
    guest = User(user.cluster, user.namespace, user.cluster.kubeconfig_for(tmp_path, {"token": token}))
    for words, right in (
        (("get",), "list rljobs.rljob.dev"),
        (("get", "pong"), "get rljobs.rljob.dev"),
        (("suspend", "pong"), "get rljobs.rljob.dev"),
    ):
        assert f"lacks the right to {right} in namespace {user.namespace}" in guest.refused(77, *words)
    assert "in all namespaces" in guest.refused(77, "get", where=("-A",))


VIEW = [
    {"apiGroups": ["rljob.dev"], "resources": ["rljobs"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list"]},
]
EDIT = [*VIEW, {"apiGroups": ["rljob.dev"], "resources": ["rljobs"], "verbs": ["patch"]}]


def grant(user: User, name: str, rules: list[dict[str, Any]], folder: Path) -> User:
    """A user with exactly these rights."""
    folder.mkdir()
    found = User(user.cluster, user.namespace, give_rights(user.cluster, user.namespace, name, rules, folder))
    eventually(lambda: found.types("get").exit_code == 0, "the server learns of a binding a moment later")
    return found


def test_the_rights_of_the_page_are_enough_and_no_more(user: User, tmp_path: Path) -> None:
    user.has("pong")
    viewer, editor = grant(user, "viewer", VIEW, tmp_path / "view"), grant(user, "editor", EDIT, tmp_path / "edit")
    for words in (("get",), ("get", "pong"), ("why", "pong"), ("top", "pong", "--once")):
        viewer.sees(*words)
    assert "did you mean pong?" in viewer.refused(2, "why", "pnog")
    poor = grant(user, "poor", VIEW[:1], tmp_path / "poor")
    assert "lacks the right to list pods" in " ".join(poor.sees("top", "pong", "--once").split())
    for words in (("suspend", "pong"), ("scale", "pong", "3"), ("checkpoint", "pong"), ("stop", "pong")):
        assert "lacks the right to patch rljobs.rljob.dev" in viewer.refused(77, *words)
    for words in (("suspend", "pong"), ("resume", "pong"), ("scale", "pong", "3"), ("checkpoint", "pong")):
        editor.sees(*words)


def test_kubernetes_own_roles_have_the_rest_of_the_rights(user: User) -> None:
    """As the page says: `view` has all but RLJobs and pods/proxy, `edit` has that, too. (No controller adds them up here.)"""

    def has(role: str, group: str, resource: str, verb: str) -> bool:
        rules = user.cluster.request(
            "GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregate-to-{role}"
        )[1]["rules"]
        return any(
            group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"] for rule in rules
        )

    for group, resource, verb in (
        ("", "pods", "list"), ("", "pods/log", "get"), ("events.k8s.io", "events", "list"),
    ):  # fmt: skip
        assert has("view", group, resource, verb), (group, resource)
    assert (has("view", "", "pods/proxy", "get"), has("edit", "", "pods/proxy", "get")) == (False, True)
    assert not has("edit", "rljob.dev", "rljobs", "patch")


def test_a_login_that_is_not_accepted(user: User, tmp_path: Path) -> None:
    stranger = User(user.cluster, user.namespace, user.cluster.kubeconfig_for(tmp_path, {"token": "x.y.z"}))
    assert "does not accept this login" in stranger.refused(77, "get")


def test_no_kubeconfig_and_no_such_context(user: User, tmp_path: Path) -> None:
    lost = User(user.cluster, user.namespace, tmp_path / "none")
    assert "there is no kubeconfig at" in lost.refused(2, "get")
    assert "--kubeconfig" in lost.refused(2, "get")
    assert "has no context production; there are: tests" in user.refused(2, "get", where=("--context", "production"))
    broken = tmp_path / "broken"
    broken.write_text("{")
    assert "can't be read" in user.refused(2, "get", "--kubeconfig", str(broken))


def test_a_server_that_is_not_there(user: User, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    path = changed_kubeconfig(user, tmp_path, server=f"https://127.0.0.1:{port}")
    assert f"the API server at https://127.0.0.1:{port}: the API server can't be reached" in User(
        user.cluster, user.namespace, path
    ).refused(69, "why", "pong")


def test_a_server_that_does_not_answer(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.has("pong")
    monkeypatch.setattr(cluster_jobs, "TIMEOUT_SECONDS", 1.0)
    with user.cluster.hanging():
        for words in (("get",), ("why", "pong"), ("scale", "pong", "2")):
            assert "the API server has not answered within 1 s" in user.refused(69, *words)
    assert user.sees("get").splitlines()[1].startswith("pong")


def test_a_cluster_without_the_crd(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the server answers for a group that it does not know."""
    monkeypatch.setattr(cluster_jobs, "RLJOBS", Resource("unknown.rljob.dev", "v1alpha1", "rljobs", "RLJob"))
    for words in (("get",), ("why", "pong"), ("suspend", "pong")):
        assert "knows no RLJobs: install the CRD with `kubectl apply" in user.refused(2, *words)


async def test_the_right_to_ask_through_the_api_server_is_looked_for(
    user: User, viewer: Client, tmp_path: Path
) -> None:
    await check_rights(viewer, None)
    token = user.cluster.token(user.namespace, "guest")
    async with connected(user.cluster, user.cluster.kubeconfig_for(tmp_path, {"token": token})) as guest:
        with pytest.raises(NoAccess, match=f"lacks: get in {user.namespace}, create in {user.namespace}"):
            await check_rights(guest, (user.namespace,))
        with pytest.raises(NoAccess, match="get in all namespaces"):
            await check_rights(guest, None)

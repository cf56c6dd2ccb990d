"""Our client against a real API server: what each verb does, and as what type each refusal arrives."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rljob_operator.kube.apiserver import access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    LacksRight,
    NamespaceTerminating,
    NotFound,
    PodSecurityViolated,
    QuotaExceeded,
    Unauthorized,
    Unavailable,
)
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, PODS

from tests.cluster.control_plane import NAMESPACE, ControlPlane, away, config_map, connected, until
from tests.cluster.policies import set_quota

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "namespace": NAMESPACE},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}
STRANGER = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(autouse=True)
def _no_object_stays(cluster: ControlPlane) -> Iterator[None]:
    yield
    cluster.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=made-by=test")
    cluster.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")


@pytest.fixture
def client(viewer: Client) -> Client:
    return viewer


def made(name: str, **data: str) -> dict[str, Any]:
    return config_map(name, labels={"made-by": "test"}, **data)


async def test_what_is_created_can_be_read_changed_and_deleted(client: Client) -> None:
    stored = await client.create(CONFIG_MAPS, made("one", a="1"))
    assert await client.get(CONFIG_MAPS, NAMESPACE, "one") == stored
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, made("one"))
    await client.delete(CONFIG_MAPS, NAMESPACE, "one", uid=stored["metadata"]["uid"])
    with pytest.raises(NotFound, match='configmaps "one" not found'):
        await client.get(CONFIG_MAPS, NAMESPACE, "one")


async def test_an_object_that_breaks_a_rule_is_refused_in_the_servers_words(client: Client) -> None:
    with pytest.raises(Invalid, match=r"spec\.containers: Required value") as caught:
        await client.create(PODS, {**POD, "spec": {"containers": []}})
    assert [cause["field"] for cause in caught.value.details["causes"]] == ["spec.containers"]


async def test_applying_changes_only_the_object_that_is_meant(client: Client) -> None:
    with pytest.raises(Conflict, match="uid"):
        await client.apply(CONFIG_MAPS, made("one", a="1"), uid=STRANGER)
    with pytest.raises(NotFound):  # what a plain apply would have created
        await client.get(CONFIG_MAPS, NAMESPACE, "one")
    uid = (await client.apply(CONFIG_MAPS, made("one", a="1")))["metadata"]["uid"]
    assert (await client.apply(CONFIG_MAPS, made("one", a="2"), uid=uid))["data"] == {"a": "2"}
    with pytest.raises(Conflict):
        await client.apply(CONFIG_MAPS, made("one", a="3"), uid=STRANGER)
    assert (await client.get(CONFIG_MAPS, NAMESPACE, "one"))["data"] == {"a": "2"}
    managers = (await client.get(CONFIG_MAPS, NAMESPACE, "one"))["metadata"]["managedFields"]
    assert {entry["manager"] for entry in managers} == {"rljob-operator"}


async def test_applying_takes_over_what_somebody_else_has_set(cluster: ControlPlane, client: Client) -> None:
    cluster.kubectl("apply", "--server-side", "--field-manager=user", "-f", "-", stdin=json.dumps(made("one", a="1")))
    assert (await client.apply(CONFIG_MAPS, made("one", a="2")))["data"] == {"a": "2"}


async def test_a_patch_of_what_was_read_is_refused_once_it_has_changed(client: Client) -> None:
    change = {"data": {"a": "2"}}
    read = (await client.create(CONFIG_MAPS, made("one", a="1", b="1")))["metadata"]["resourceVersion"]
    second = await client.patch(CONFIG_MAPS, NAMESPACE, "one", change, resource_version=read)
    assert second["data"] == {"a": "2", "b": "1"}
    with pytest.raises(Conflict):
        await client.patch(CONFIG_MAPS, NAMESPACE, "one", change, resource_version=read)
    await client.patch(CONFIG_MAPS, NAMESPACE, "one", change)


async def test_a_deletion_means_one_object_and_not_its_successor(client: Client) -> None:
    await client.create(CONFIG_MAPS, made("one"))
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, NAMESPACE, "one", uid=STRANGER)
    await client.get(CONFIG_MAPS, NAMESPACE, "one")
    await client.delete(CONFIG_MAPS, NAMESPACE, "one")
    with pytest.raises(NotFound):
        await client.delete(CONFIG_MAPS, NAMESPACE, "one")


async def test_a_long_list_comes_in_pages_of_one_moment(client: Client) -> None:
    names = [f"page-{k}" for k in range(7)]
    await asyncio.gather(*(client.create(CONFIG_MAPS, made(name, a="1")) for name in names))
    found = []
    async for page in client.pages(CONFIG_MAPS, NAMESPACE, label_selector="made-by=test", limit=3):
        found.append(page)
        if len(found) == 1:
            await client.create(CONFIG_MAPS, made("page-after"))
    assert [len(page.items) for page in found] == [3, 3, 1]
    assert len({page.resource_version for page in found}) == 1
    assert sorted(item["metadata"]["name"] for page in found for item in page.items) == names
    bare = await client.list(CONFIG_MAPS, NAMESPACE, label_selector="made-by=test", metadata_only=True)
    assert len(bare.items) == 8
    assert all("data" not in item for item in bare.items)


async def test_a_watch_tells_what_happens_after_a_list(client: Client) -> None:
    version = (await client.list(CONFIG_MAPS, None, label_selector="made-by=test")).resource_version
    await client.create(CONFIG_MAPS, made("one"))
    await client.create(CONFIG_MAPS, config_map("another", labels={"made-by": "somebody"}))
    await client.apply(CONFIG_MAPS, made("one", a="2"))
    await client.delete(CONFIG_MAPS, NAMESPACE, "one")
    await client.delete(CONFIG_MAPS, NAMESPACE, "another")
    seen = [
        (event.kind, event.document["metadata"].get("name"))
        async for event in client.watch(
            CONFIG_MAPS, None, resource_version=version, label_selector="made-by=test", timeout_seconds=2
        )
    ]
    assert seen == [
        ("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one"),
    ]  # fmt: skip


async def test_a_refusal_for_quota_is_not_one_for_rights(
    cluster: ControlPlane, client: Client, namespace: str, tmp_path: Path
) -> None:
    set_quota(cluster, namespace, "pods", most=0, used=0)
    with pytest.raises(QuotaExceeded, match="exceeded quota: few"):
        await client.create(PODS, {**POD, "metadata": {"name": "one", "namespace": namespace}})
    stranger = cluster.kubeconfig_for(tmp_path, {"token": cluster.token(namespace, "stranger")})
    async with connected(cluster, stranger) as its_own:
        with pytest.raises(LacksRight, match="cannot get resource"):
            await its_own.get(PODS, namespace, "one")


async def test_a_refusal_for_pod_security_is_told_apart(cluster: ControlPlane, client: Client, namespace: str) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    cluster.change(f"/api/v1/namespaces/{namespace}", label)
    with pytest.raises(PodSecurityViolated, match="allowPrivilegeEscalation"):
        await client.create(PODS, {**POD, "metadata": {"name": "one", "namespace": namespace}})


async def test_nothing_can_be_made_in_a_namespace_that_goes(
    cluster: ControlPlane, client: Client, namespace: str
) -> None:
    cluster.request("DELETE", f"/api/v1/namespaces/{namespace}")
    with pytest.raises(NamespaceTerminating):
        await client.create(CONFIG_MAPS, config_map("one", namespace))


async def test_a_token_that_was_replaced_is_read_anew(
    cluster: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubeconfig with a token file; the first token in it is worth nothing any more."""
    monkeypatch.setattr(access, "RENEWED_AT_MOST_EVERY_SECONDS", 0.5)
    token = cluster.token(namespace, "visitor")
    (tmp_path / "token").write_text("out-of-date")
    async with connected(cluster, cluster.kubeconfig_for(tmp_path, {"tokenFile": "token"})) as client:
        with pytest.raises(Unauthorized):
            await client.get(CONFIG_MAPS, namespace, "one")
        (tmp_path / "token").write_text(token)
        await asyncio.sleep(0.5)
        with pytest.raises(Forbidden, match=f"system:serviceaccount:{namespace}:visitor"):
            await client.get(CONFIG_MAPS, namespace, "one")


async def test_every_call_is_counted_and_guarded(cluster: ControlPlane) -> None:
    calls: list[tuple[str, str, str]] = []
    leader = [True]

    class NotLeader(Exception):
        pass

    def guard() -> None:
        if not leader:
            raise NotLeader

    observe = lambda verb, resource, code, seconds: calls.append((verb, resource, code))  # noqa: E731
    async with connected(cluster, observe=observe, guard=guard) as client:
        await client.create(CONFIG_MAPS, made("one"))
        with pytest.raises(AlreadyExists):
            await client.create(CONFIG_MAPS, made("one"))
        leader.clear()
        for write in (
            client.create(CONFIG_MAPS, made("two")),
            client.apply(CONFIG_MAPS, made("two")),
            client.patch(CONFIG_MAPS, NAMESPACE, "one", {}),
            client.delete(CONFIG_MAPS, NAMESPACE, "one"),
        ):
            with pytest.raises(NotLeader):
                await write
        assert len((await client.list(CONFIG_MAPS, NAMESPACE, label_selector="made-by=test")).items) == 1
    assert calls == [
        ("create", "configmaps", "201"), ("create", "configmaps", "409"), ("list", "configmaps", "200"),
    ]  # fmt: skip


async def test_a_server_that_hangs_costs_no_more_than_the_time_allowed(cluster: ControlPlane) -> None:
    async with connected(cluster, timeout_seconds=1.0) as client:
        await client.list(CONFIG_MAPS, NAMESPACE)
        with cluster.hanging():
            began = time.monotonic()
            with pytest.raises(Unavailable, match="within 1 s"):
                await client.list(CONFIG_MAPS, NAMESPACE)
            assert time.monotonic() - began < 2.0
        await client.list(CONFIG_MAPS, NAMESPACE)


async def test_a_server_that_is_gone_for_a_while_is_found_again(cluster: ControlPlane, client: Client) -> None:
    version = (await client.list(CONFIG_MAPS, NAMESPACE)).resource_version
    await client.create(CONFIG_MAPS, made("one"))
    ended: list[str] = []

    async def watch() -> None:
        try:
            async for _ in client.watch(CONFIG_MAPS, NAMESPACE, resource_version=version):
                pass
        except Unavailable as problem:
            ended.append(str(problem))

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.5)
    async with away(cluster, "killed"):
        await until("the watch being cut", lambda: bool(ended), 5)
        with pytest.raises(Unavailable):
            await client.list(CONFIG_MAPS, NAMESPACE)
    await watching
    await client.create(CONFIG_MAPS, made("two"))
    with pytest.raises(Gone):  # a server that has just started knows nothing of before
        async for _ in client.watch(CONFIG_MAPS, NAMESPACE, resource_version=version, timeout_seconds=5):
            pass

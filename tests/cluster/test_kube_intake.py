"""kopf and our intake on a real API server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rljob_operator.kube.apiserver.access import load_access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import RLJOBS
from rljob_operator.kube.watch import kopf_watch
from rljob_operator.kube.watch.intake import Intake

from tests.cluster.bad_proxy import bad_proxy
from tests.cluster.control_plane import CRD_FILE, ControlPlane, away, connected, meanwhile, until
from tests.cluster.policies import give_rights
from tests.cluster.reconciling import written
from tests.cluster.test_kube_lease import grant
from tests.support.operator_roles import role_objects


@asynccontextmanager
async def taking_in(
    cluster: ControlPlane,
    namespaces: Sequence[str] | None,
    wait: bool = True,
    kubeconfig: Path | None = None,
    sweep_seconds: float = 2.0,
) -> AsyncIterator[tuple[Intake, list[str]]]:
    """An intake that logs in as ``kubeconfig`` says, and the jobs that it has told of."""
    enqueued: list[str] = []
    async with connected(cluster, kubeconfig) as its_own:
        access = await load_access(str(kubeconfig or cluster.kubeconfig))
        intake = Intake(access, its_own, namespaces, lambda namespace, name: enqueued.append(f"{namespace}/{name}"))
        async with meanwhile(intake.run(sweep_seconds)):
            if wait:
                await asyncio.wait_for(intake.synced.wait(), 30.0)
            yield intake, enqueued


@pytest.mark.parametrize("scoped", [False, True], ids=["all namespaces", "one namespace"])
async def test_jobs_are_taken_in_from_the_first_to_the_last(
    cluster: ControlPlane, viewer: Client, namespace: str, other_namespace: str, scoped: bool
) -> None:
    await viewer.create(RLJOBS, written(namespace, "before"))
    async with taking_in(cluster, [namespace] if scoped else None) as (intake, enqueued):
        assert enqueued == [f"{namespace}/before"]
        made = await viewer.create(RLJOBS, written(namespace, "after"))
        await viewer.create(RLJOBS, written(other_namespace, "elsewhere"))
        await until("the new job", lambda: f"{namespace}/after" in enqueued, 10)
        kept = intake.get(namespace, "after")
        assert kept is not None
        assert (kept["spec"], kept["metadata"]["uid"]) == (made["spec"], made["metadata"]["uid"])
        assert "managedFields" not in kept["metadata"]
        assert "finalizers" not in (await viewer.get(RLJOBS, namespace, "after"))["metadata"]
        enqueued.clear()
        await viewer.patch(RLJOBS, namespace, "after", {"status": {"observedGeneration": 1}}, subresource="status")
        await until("the status", lambda: (intake.get(namespace, "after") or {}).get("status") is not None, 10)
        await viewer.patch(RLJOBS, namespace, "after", {"metadata": {"annotations": {"rljob.dev/changed": "1"}}})
        await until("the change", lambda: bool(enqueued), 10)
        await viewer.delete(RLJOBS, namespace, "after")
        await until("its end", lambda: intake.get(namespace, "after") is None, 10)
        assert enqueued == [f"{namespace}/after"] * 2, "once for the change, once for the end, not for the status"
        assert (
            intake.known() == ((namespace, "before"),) if scoped else (other_namespace, "elsewhere") in intake.known()
        )


async def test_in_one_namespace_it_needs_no_more_than_to_list_and_watch_jobs_there(
    cluster: ControlPlane, viewer: Client, namespace: str, tmp_path: Path
) -> None:
    rules = [{"apiGroups": ["rljob.dev"], "resources": ["rljobs"], "verbs": ["list", "watch"]}]
    limited = give_rights(cluster, namespace, "operator", rules, tmp_path)
    async with taking_in(cluster, [namespace], kubeconfig=limited) as (intake, enqueued):
        await viewer.create(RLJOBS, written(namespace, "pong"))
        await until("the job", lambda: enqueued == [f"{namespace}/pong"], 10)
        await viewer.delete(RLJOBS, namespace, "pong")
        await until("its end", lambda: len(intake) == 0, 10)


async def test_a_namespace_that_may_not_be_read_is_named_and_the_others_go_on(
    cluster: ControlPlane,
    viewer: Client,
    namespace: str,
    other_namespace: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = cluster.kubeconfig_for(tmp_path, {"token": cluster.token(namespace, "operator")})
    roles = role_objects("operator", namespace, (namespace, other_namespace))
    grant(cluster, namespace, [each for each in roles if each["metadata"]["namespace"] == namespace])
    other = [each for each in roles if each["metadata"]["namespace"] == other_namespace]
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{other_namespace}/rolebindings/operator"
    async with taking_in(cluster, [other_namespace, namespace], kubeconfig=limited) as (intake, enqueued):
        assert list(intake.unread) == [other_namespace], (
            "where rights are missing from the beginning it begins all the same"
        )
        await viewer.create(RLJOBS, written(other_namespace, "there"))
        for number in range(3):
            await viewer.create(RLJOBS, written(namespace, f"here-{number}"))
            await until("a job here", lambda name=f"{namespace}/here-{number}": name in enqueued, 10)  # type: ignore[misc]
            await asyncio.sleep(2.0)
        assert caplog.text.count(f"RLJobs in {other_namespace} can't be listed: rljobs.rljob.dev is forbidden") == 1
        await asyncio.to_thread(grant, cluster, other_namespace, other)
        await until("the job there", lambda: f"{other_namespace}/there" in enqueued, 20)
        await asyncio.to_thread(cluster.request, "DELETE", bindings)
        await until("what is lost", lambda: list(intake.unread) == [other_namespace], 20)
        assert intake.get(other_namespace, "there"), "whether it is gone is not known"
        await viewer.create(RLJOBS, written(namespace, "last"))
        await until("the last job", lambda: f"{namespace}/last" in enqueued, 10)


async def test_what_happens_around_an_api_server_that_dies_is_taken_in(
    cluster: ControlPlane, viewer: Client, namespace: str
) -> None:
    async with taking_in(cluster, [namespace]) as (intake, enqueued):
        for name in ("stays", "goes"):
            await viewer.create(RLJOBS, written(namespace, name))
        await until("both jobs", lambda: len(intake) == 2, 10)
        async with away(cluster, "killed"):
            await asyncio.sleep(3.0)
            assert len(intake) == 2
        await viewer.delete(RLJOBS, namespace, "goes")
        await viewer.create(RLJOBS, written(namespace, "comes"))
        await until("what happened", lambda: {name for _, name in intake.known()} == {"stays", "comes"}, 30)
        enqueued.clear()
        await viewer.patch(RLJOBS, namespace, "comes", {"metadata": {"annotations": {"rljob.dev/changed": "1"}}})
        await until("the change", lambda: enqueued == [f"{namespace}/comes"], 30)


async def test_a_watch_that_falls_silent_or_is_too_old_is_begun_again_by_kopf(
    cluster: ControlPlane, viewer: Client, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kopf_watch, "SILENCE_SECONDS", 3.0)
    async with (
        bad_proxy(cluster, tmp_path) as (proxy, kubeconfig),
        taking_in(cluster, [namespace], kubeconfig=kubeconfig, sweep_seconds=60.0) as (intake, enqueued),
    ):
        await viewer.create(RLJOBS, written(namespace, "pong"))
        await until("the job", lambda: len(intake) == 1, 10)
        for fault in ("silent", "cut, and answered with 410", "none"):
            proxy.spoil({"cut": 1.0} if fault.startswith("cut") else {})
            proxy.silent |= proxy.watches if fault == "silent" else set()
            enqueued.clear()
            await viewer.patch(RLJOBS, namespace, "pong", {"metadata": {"annotations": {"rljob.dev/changed": fault}}})
            await until(f"the change ({fault})", lambda: bool(enqueued), 20)
        assert proxy.silent
        assert proxy.spoilt["cut"]


async def test_a_kopf_that_has_ended_is_started_anew(cluster: ControlPlane, viewer: Client, namespace: str) -> None:
    async with taking_in(cluster, [namespace]) as (intake, _):
        await viewer.create(RLJOBS, written(namespace, "pong"))
        await until("the job", lambda: len(intake) == 1, 10)
        intake._watch.start_anew()
        await asyncio.sleep(0.5)
        await viewer.delete(RLJOBS, namespace, "pong")
        await viewer.create(RLJOBS, written(namespace, "another"))
        await until("what happened", lambda: [name for _, name in intake.known()] == ["another"], 30)


async def test_it_waits_for_the_definition(cluster: ControlPlane, viewer: Client, namespace: str) -> None:
    cluster.told("delete", "crd", "rljobs.rljob.dev", "--timeout=30s")
    try:
        async with taking_in(cluster, [namespace], wait=False) as (intake, enqueued):
            await asyncio.sleep(3.0)
            assert not intake.synced.is_set()
            await asyncio.to_thread(cluster.kubectl, "apply", "-f", str(CRD_FILE))
            await asyncio.wait_for(intake.synced.wait(), 30.0)
            await asyncio.to_thread(
                cluster.kubectl, "wait", "--for=condition=Established", "crd/rljobs.rljob.dev", "--timeout=30s"
            )
            await viewer.create(RLJOBS, written(namespace, "pong"))
            await until("the job", lambda: enqueued == [f"{namespace}/pong"], 30)
    finally:
        await asyncio.to_thread(cluster.kubectl, "apply", "-f", str(CRD_FILE))


async def test_jobs_of_a_definition_that_was_deleted_and_made_again_are_taken_in(
    cluster: ControlPlane, viewer: Client, namespace: str
) -> None:
    async with taking_in(cluster, None) as (intake, _):
        await viewer.create(RLJOBS, written(namespace, "before"))
        await until("the job", lambda: (namespace, "before") in intake.known(), 10)
        try:
            await asyncio.to_thread(cluster.told, "delete", "crd", "rljobs.rljob.dev", "--timeout=30s")
            await until("its end", lambda: len(intake) == 0, 20)
            await asyncio.sleep(15.0)  # so long kopf finds no such kind, and then looks for none
        finally:
            await asyncio.to_thread(cluster.told, "apply", "-f", str(CRD_FILE))
            await asyncio.to_thread(
                cluster.told, "wait", "--for=condition=Established", "crd/rljobs.rljob.dev", "--timeout=30s"
            )
        await viewer.create(RLJOBS, written(namespace, "after"))
        await until("the next job", lambda: intake.known() == ((namespace, "after"),), 30)

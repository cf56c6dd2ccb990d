"""Pods that the API server refuses: they are said in its words, and nothing else is touched by it."""

from __future__ import annotations

import asyncio
from typing import Any

from rljob_operator.kube.apiserver.resources import EVENTS, PODS, RLJOBS
from rljob_operator.kube.job.apply import CHUNK

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import Run, bring_up, written
from tests.cluster.test_kube_reconcile import Clock, at_work, condition, status_of

MERGE = "application/merge-patch+json"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def set_quota(cluster: ControlPlane, namespace: str, pods: int, used: int) -> None:
    """No controller computes what is used here."""
    path, hard = f"/api/v1/namespaces/{namespace}/resourcequotas", {"pods": str(pods)}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
    cluster.request("POST", path, quota)
    cluster.request("PATCH", f"{path}/few", {"spec": {"hard": hard}}, MERGE)
    status = {"status": {"hard": hard, "used": {"pods": str(used)}}}
    code, answer = cluster.request("PATCH", f"{path}/few/status", status, MERGE)
    assert code == 200, answer


def message(status: dict[str, Any], kind: str) -> str:
    (found,) = [each["message"] for each in status["conditions"] if each["type"] == kind]
    return str(found)


def test_a_quota_bounds_growth_and_replacements_and_touches_nothing_that_runs(
    cluster: ControlPlane, namespace: str
) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, written(namespace, "pong", actors={"replicas": 2}))
            clock = Clock()
            run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
            await bring_up(run, viewer, kubelet, "pong")

            async def a_minute_later(updates: int = 100) -> dict[str, Any]:
                for _ in range(4):
                    clock.seconds += 20.0
                    clock.updates += updates
                    run.poll.answers[namespace, "pong"] = clock.answer()
                    await run.settle(viewer, "pong")
                    await kubelet.start("pong")
                return await status_of(viewer, namespace, "pong")

            await a_minute_later()
            before = {name: pod["metadata"]["uid"] for name, (pod,) in (await kubelet.pods("pong")).items()}
            set_quota(cluster, namespace, pods=3, used=4)
            await viewer.delete(PODS, namespace, (await kubelet.pods("pong"))["actor-1"][0]["metadata"]["name"])
            await kubelet.finish_deleted("pong")
            status = await a_minute_later()
            status = await a_minute_later()
            assert condition(status, "Admitted") == ("False", "QuotaExceeded")
            assert "exceeded quota: few" in message(status, "Admitted")
            assert condition(status, "Ready") == ("True", "Degraded")
            assert condition(status, "ActorsReady") == ("False", "QuotaExceeded")
            after = {name: pod["metadata"] for name, (pod,) in (await kubelet.pods("pong")).items()}
            assert {name: each["uid"] for name, each in after.items()} == {
                name: uid for name, uid in before.items() if name != "actor-1"
            }
            assert not any("deletionTimestamp" in each for each in after.values())

            set_quota(cluster, namespace, pods=5, used=3)
            await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"actors": {"replicas": 5}}})
            status = await a_minute_later()
            assert status["actors"]["ready"] == 3, "growth goes as far as the quota"
            assert status["autoscaling"]["desiredReplicas"] == 5
            assert condition(status, "ScalingLimited") == ("True", "QuotaLimited")
            assert message(status, "ScalingLimited").startswith("5 wanted, 3 fit: ")
            set_quota(cluster, namespace, pods=9, used=5)
            status = await a_minute_later()
            assert (status["actors"]["ready"], condition(status, "Admitted")[0]) == (5, "True")

            await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"actors": {"replicas": 60, "startupWave": 60}}})
            await run.look(viewer)
            client.reset()
            await run.reconciler.reconcile((namespace, "pong"))
            assert client.calls["create", "pods"] == CHUNK, "sixty need not be asked for to know that the quota is full"
            assert len(await kubelet.pods("pong")) == 9

    asyncio.run(story())


def test_a_webhook_that_fails_for_one_role_keeps_no_other_from_coming_up(cluster: ControlPlane, namespace: str) -> None:
    webhook = {
        "name": "down.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "objectSelector": {"matchLabels": {"rljob.dev/role": "learner"}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
    }
    about = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    made = {**about, "metadata": {"name": namespace}, "webhooks": [webhook]}

    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            clock = Clock()
            run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
            await viewer.create(RLJOBS, written(namespace, "pong", actors={"replicas": 2}))
            for _ in range(3):
                await run.settle(viewer, "pong")
                await kubelet.start("pong")
            await run.settle(viewer, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert "learner" not in await kubelet.pods("pong")
            assert status["replay"]["ready"] == 1
            assert status["restarts"] == {"counted": 0, "ignored": 0}
            clock.seconds += 100_000.0
            await run.settle(viewer, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, "Ready")[0] == "False", "it waits, it never fails"
            assert "failed calling webhook" in message(status, "LearnerReady")
            assert "failed calling webhook" in message(status, "Ready")
            cluster.request("DELETE", f"{WEBHOOKS}/{namespace}")
            clock.seconds += 61.0
            await bring_up(run, viewer, kubelet, "pong")
            assert (await status_of(viewer, namespace, "pong"))["learner"]["ready"]
            await run.events.flush()
            assert (await viewer.list(EVENTS, namespace)).items

    code, answer = cluster.request("POST", WEBHOOKS, made)
    assert code == 201, answer
    try:
        asyncio.run(story())
    finally:
        cluster.request("DELETE", f"{WEBHOOKS}/{namespace}")

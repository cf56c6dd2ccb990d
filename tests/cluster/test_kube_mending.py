"""What goes wrong between an operator, its user and the API server, and how it comes right."""

from __future__ import annotations

import asyncio

import pytest
from rljob_operator.kube.apiserver.errors import Unavailable
from rljob_operator.kube.apiserver.resources import RLJOBS, Object
from rljob_operator.kube.render import names

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import Run, bring_up, written
from tests.cluster.test_kube_reconcile import TWO_ACTORS, at_work, condition, status_of

BAD_TEMPLATE = {"podTemplate": {"spec": {"tolerations": [{"key": "spare", "operator": "Sometimes"}]}}}


def test_a_refused_job_without_a_place_for_checkpoints_is_mended_as_it_says(
    cluster: ControlPlane, namespace: str
) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, written(namespace, "pong", learner=BAD_TEMPLATE, **TWO_ACTORS))
            now = [0.0]
            run = Run(client, namespace, monotonic=lambda: now[0])
            await bring_up(run, viewer, kubelet, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, "Accepted") == ("False", "PodTemplateRejected")
            (words,) = [each["message"] for each in status["conditions"] if each["type"] == "Accepted"]
            assert "Sometimes" in words
            assert words.endswith("set suspend: true with it, and resume")

            mended = {"suspend": True, "learner": {"podTemplate": None}}
            await viewer.patch(RLJOBS, namespace, "pong", {"spec": mended})
            for _ in range(3):
                await run.settle(viewer, "pong")
                await kubelet.finish_deleted("pong")
            await run.settle(viewer, "pong")
            await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
            await bring_up(run, viewer, kubelet, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert (condition(status, "Accepted"), status["actors"]["ready"]) == (("True", "Valid"), 2)

    asyncio.run(story())


def test_a_namespace_that_is_being_deleted_is_told_as_that(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, _):
            await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
            code, answer = cluster.request("DELETE", f"/api/v1/namespaces/{namespace}")
            assert code == 200, answer
            run = Run(client, namespace)
            await run.settle(viewer, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, "Accepted") == ("False", "NamespaceTerminating")

    asyncio.run(story())


def test_an_actor_that_was_asked_in_vain_and_may_stay_is_asked_no_more(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
            run = Run(client, namespace)
            await bring_up(run, viewer, kubelet, "pong")
            await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"actors": {"replicas": 1}}})
            await run.look(viewer)
            client.reset()
            client.loses = ("delete", "pods")
            with pytest.raises(Unavailable):
                await run.reconciler.reconcile((namespace, "pong"))
            client.loses = None
            await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"actors": {"replicas": 2}}})
            asked = [member for member, (pod,) in (await kubelet.pods("pong")).items() if is_asked(pod)]
            assert len(asked) == 1, "it was noted, and not asked"
            await run.settle(viewer, "pong")
            pods = await kubelet.pods("pong")
            assert not any(is_asked(pod) for (pod,) in pods.values())
            assert "deletionTimestamp" not in pods[asked[0]][0]["metadata"]

            await kubelet.end(pods[asked[0]][0], 1)
            await run.settle(viewer, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert status["restarts"] == {"counted": 0, "ignored": 1}, "its end is one that was not asked for"

    asyncio.run(story())


def is_asked(pod: Object) -> bool:
    return names.ASKED_ANNOTATION in pod["metadata"].get("annotations", {})

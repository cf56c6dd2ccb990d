"""Our finalizer comes off every pod that it may come off, whatever became of the others meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from rljob_operator.kube.apiserver.errors import Conflict
from rljob_operator.kube.apiserver.resources import PODS, Object
from rljob_operator.kube.job.apply import PodWriter
from rljob_operator.kube.render import names
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.watch.expectations import Expectations

from tests.cluster.control_plane import ControlPlane
from tests.cluster.kube_client import connected

MANY = 40


def pod(namespace: str, name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "finalizers": [names.FINALIZER]},
        "spec": {"containers": [{"name": "worker", "image": "rl:1"}]},
    }


def test_a_pod_that_was_changed_meanwhile_keeps_no_other(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with connected(cluster) as client:
            known = [await client.create(PODS, pod(namespace, f"actor-{number}")) for number in range(MANY)]
            await client.patch(PODS, namespace, "actor-0", {"metadata": {"annotations": {"somebody": "was here"}}})
            writer = PodWriter(client, Expectations(), Settings(image="rl:1"))
            with pytest.raises(Conflict):
                await writer.release_all(known)
            left = [each for each in (await client.list(PODS, namespace)).items if each["metadata"].get("finalizers")]
            assert [each["metadata"]["name"] for each in left] == ["actor-0"]
            await writer.release_all(left)

    asyncio.run(story())

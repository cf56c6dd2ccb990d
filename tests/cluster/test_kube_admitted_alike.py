"""A job whose pods were believed to be admitted, as another job's like them had been, and are refused after all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import PodSecurityViolated
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import Run, written
from tests.cluster.test_kube_reconcile import TWO_ACTORS, Clock, at_work, condition, status_of

ON_THE_HOST: dict[str, Any] = {"replay": {"podTemplate": {"spec": {"hostNetwork": True}}}, **TWO_ACTORS}
LONGEST_SECONDS = 20.0


async def restrict(cluster: ControlPlane, viewer: Client, namespace: str) -> None:
    """Have the namespace refuse what Pod Security calls privileged, and wait until the API server does so."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    merge = "application/merge-patch+json"
    code, answer = cluster.request("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}}, merge)
    assert code == 200, answer
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tried", "namespace": namespace},
        "spec": {"hostNetwork": True, "containers": [{"name": "one", "image": "one"}]},
    }
    async with asyncio.timeout(LONGEST_SECONDS):
        while True:
            try:
                await viewer.create(PODS, pod, dry_run=True)
            except PodSecurityViolated:
                return
            await asyncio.sleep(0.1)


def test_its_user_reads_in_the_words_of_the_api_server_why(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, _):
            clock = Clock()
            run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
            await viewer.create(RLJOBS, written(namespace, "first", **ON_THE_HOST))
            await run.settle(viewer, "first")
            await restrict(cluster, viewer, namespace)
            await viewer.create(RLJOBS, written(namespace, "second", **ON_THE_HOST))
            client.reset()
            with pytest.raises(PodSecurityViolated):
                await run.turn(viewer, "second")
            assert not client.calls["try", "pods"]
            await run.settle(viewer, "second")
            status = await status_of(viewer, namespace, "second")
            assert condition(status, "Accepted") == ("False", "PodSecurityForbidden")
            (words,) = [each["message"] for each in status["conditions"] if each["type"] == "Accepted"]
            assert "hostNetwork" in words
            assert (await run.turn(viewer, "second") or 0.0) > 0.0, "it is looked at again, and not at once"

    asyncio.run(story())

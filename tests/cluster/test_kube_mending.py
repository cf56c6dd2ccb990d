"""What goes wrong between an operator, its user and the API server, and how it comes right."""

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Unavailable
from rljob_operator.kube.apiserver.resources import RLJOBS, Object
from rljob_operator.kube.render import names

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import (
    TWO_ACTORS,
    BreakingClient,
    Clock,
    Kubelet,
    Run,
    bring_up,
    condition,
    message,
    started,
    status_of,
    take_down,
    written,
)

BAD_TEMPLATE = {"podTemplate": {"spec": {"tolerations": [{"key": "spare", "operator": "Sometimes"}]}}}


async def test_a_refused_job_without_a_place_for_checkpoints_is_mended_as_it_says(
    viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", learner=BAD_TEMPLATE, **TWO_ACTORS))
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("False", "PodTemplateRejected")
    words = message(status, "Accepted")
    assert "Sometimes" in words
    assert words.endswith("set suspend: true with it, and resume")

    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": True, "learner": {"podTemplate": None}}})
    await take_down(run, viewer, kubelet, "pong")
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
    await bring_up(run, viewer, kubelet, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert (condition(status, "Accepted"), status["actors"]["ready"]) == (("True", "Valid"), 2)


async def test_a_namespace_that_is_being_deleted_is_told_as_that(
    cluster: ControlPlane, viewer: Client, run: Run, namespace: str
) -> None:
    await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
    code, answer = cluster.request("DELETE", f"/api/v1/namespaces/{namespace}")
    assert code == 200, answer
    await run.settle(viewer, "pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Accepted") == ("False", "NamespaceTerminating")


async def test_an_actor_that_was_asked_in_vain_and_may_stay_is_asked_no_more(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
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


def is_asked(pod: Object) -> bool:
    return names.ASKED_ANNOTATION in pod["metadata"].get("annotations", {})

"""Nothing keeps a pod until its end has been counted: what was seen of it at last is counted, once, whatever fails meanwhile.

What a job that has failed leaves behind, on a real API server: pods to read the logs of, and none that can't go.
"""

import asyncio

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Unavailable
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.watch.pods import trim

from tests.cluster.reconciling import (
    TWO_ACTORS,
    BreakingClient,
    Kubelet,
    Run,
    bring_up,
    condition,
    started,
    status_of,
    take_down,
    written,
)


async def deleted(viewer: Client, pod: Object) -> None:
    about = pod["metadata"]
    await viewer.delete(PODS, about["namespace"], about["name"], grace_seconds=0)


async def another(run: Run, viewer: Client, kubelet: Kubelet, member: str, before: Object) -> Object:
    """The pod that follows; an end is followed by a start half a second later."""
    for _ in range(20):
        await run.settle(viewer, "pong")
        found = (await kubelet.pods("pong")).get(member, [])
        if found and found[0]["metadata"]["uid"] != before["metadata"]["uid"]:
            return found[0]
        await asyncio.sleep(0.3)
    raise AssertionError(f"no other pod of {member}")


async def restarts(viewer: Client, namespace: str) -> tuple[int, int]:
    found = (await status_of(viewer, namespace, "pong"))["restarts"]
    return found["counted"], found["ignored"]


async def test_an_end_is_counted_once_though_its_pod_has_gone_and_the_status_is_refused(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
    shard = await kubelet.pod("pong", "replay-0")
    await kubelet.end(shard, 9, message="the disk is full")
    about = shard["metadata"]
    last = trim(await viewer.get(PODS, namespace, about["name"]))
    await deleted(viewer, shard)
    run.pods.change("DELETED", last)  # all that the watch ever tells of that end

    client.reset(1)
    with pytest.raises(Unavailable):
        await run.turn(viewer, "pong")
    assert client.order == [("patch", "rljobs/status")]
    assert (await another(run, viewer, kubelet, "replay-0", shard))["metadata"]["name"] != about["name"]
    assert await restarts(viewer, namespace) == (1, 0)
    (told,) = (await status_of(viewer, namespace, "pong"))["failures"]
    assert (told["podName"], told["exitCode"], told["message"]) == (about["name"], 9, "the disk is full")
    await Run(client, namespace).settle(viewer, "pong")
    assert await restarts(viewer, namespace) == (1, 0)
    assert not [pod for pod in run.pods.of_key((namespace, "pong")) if "gone" in pod]


async def test_a_learner_that_went_while_no_operator_looked_was_disrupted(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, namespace: str
) -> None:
    await started(Run(client, namespace), viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
    learner = await kubelet.pod("pong", "learner")
    await deleted(viewer, learner)

    run = Run(client, namespace)  # the next operator
    await another(run, viewer, kubelet, "learner", learner)
    assert await restarts(viewer, namespace) == (0, 1)
    (told,) = (await status_of(viewer, namespace, "pong"))["failures"]
    assert (told["podName"], told["reason"]) == (learner["metadata"]["name"], "Disrupted")
    await kubelet.start("pong")
    await Run(client, namespace).settle(viewer, "pong")
    assert await restarts(viewer, namespace) == (0, 1)


async def test_a_pod_has_the_time_to_leave_that_its_template_gives(
    viewer: Client, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    patient = {"podTemplate": {"spec": {"terminationGracePeriodSeconds": 900}}}
    await started(run, viewer, kubelet, written(namespace, "pong", learner=patient))
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": True}})
    for _ in range(4):
        await run.settle(viewer, "pong")
        await kubelet.finish_deleted("pong", but={"learner"})
    assert (await kubelet.pod("pong", "learner"))["metadata"]["deletionGracePeriodSeconds"] == 900


async def test_only_pods_that_ended_by_themselves_stay_and_those_go_when_they_are_deleted(
    viewer: Client, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS, backoffLimit=0))
    learner = await kubelet.pod("pong", "learner")
    await kubelet.end(learner, 1)
    await take_down(run, viewer, kubelet, "pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Failed")[0] == "True"
    assert set(await kubelet.pods("pong")) == {"learner"}, "for its logs"

    await viewer.delete(PODS, namespace, learner["metadata"]["name"])  # a user has read them, or drains its node
    await run.settle(viewer, "pong")
    await kubelet.finish_deleted("pong")
    assert not await kubelet.pods("pong")


async def test_a_sidecar_keeps_no_pod_and_its_device_after_the_end(
    viewer: Client, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    """A learner fails a job for good beside a container that does not end by itself: the kubelet is told to end that, and the pod
    with the learner's log stays."""
    await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS, backoffLimit=0))
    await bring_up(run, viewer, kubelet, "pong")
    learner = await kubelet.pod("pong", "learner")
    await kubelet.end(learner, 1, phase="Running")
    for _ in range(8):
        await run.turn(viewer, "pong")
        await kubelet.finish_deleted("pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Failed")[0] == "True"
    pods = await kubelet.pods("pong")
    (left,) = pods["learner"]
    assert left["metadata"]["uid"] == learner["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"], "its log can be read"
    assert left["spec"]["activeDeadlineSeconds"] == 1
    await kubelet.end(left, 1, reason="DeadlineExceeded")
    await run.settle(viewer, "pong")

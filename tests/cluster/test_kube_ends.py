"""Nothing keeps a pod until its end has been counted: what was seen of it at last is counted, once, whatever fails meanwhile."""

import asyncio

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Unavailable
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.watch.pods import trim

from tests.cluster.reconciling import TWO_ACTORS, BreakingClient, Kubelet, Run, started, status_of, written


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

    client.reset(1, "lost")
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

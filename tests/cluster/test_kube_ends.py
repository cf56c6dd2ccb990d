"""Nothing keeps a pod until its end has been counted: what was seen of it at last is counted, once, whatever fails meanwhile.

What a job that has failed leaves behind, on a real API server: pods to read the logs of, and none that can't go.
"""

import asyncio

import pytest
from rljob_operator.kube.apiserver.errors import Unavailable
from rljob_operator.kube.apiserver.resources import PODS, Object
from rljob_operator.kube.render import names
from rljob_operator.kube.watch.pods import trim

from tests.cluster.reconciling import TWO_ACTORS, OneJob


async def another(pong: OneJob, before: Object) -> Object:
    """The pod that follows; an end is followed by a start half a second later."""
    for _ in range(20):
        await pong.settle()
        found = (await pong.pods()).get(before["metadata"]["labels"][names.MEMBER_LABEL], [])
        if found and found[0]["metadata"]["uid"] != before["metadata"]["uid"]:
            return found[0]
        await asyncio.sleep(0.3)
    raise AssertionError(f"no other pod than {before['metadata']['name']}")


async def restarts(pong: OneJob) -> tuple[int, int]:
    found = (await pong.status())["restarts"]
    return found["counted"], found["ignored"]


async def test_an_end_is_counted_once_though_its_pod_has_gone_and_the_status_is_refused(pong: OneJob) -> None:
    await pong.start(**TWO_ACTORS)
    shard = await pong.pod("replay-0")
    name = shard["metadata"]["name"]
    await pong.end("replay-0", 9, message="the disk is full")
    last = trim(await pong.viewer.get(PODS, pong.namespace, name))
    await pong.viewer.delete(PODS, pong.namespace, name, grace_seconds=0)
    pong.run.pods.change("DELETED", last)  # all that the watch ever tells of that end

    pong.client.reset(1)
    with pytest.raises(Unavailable):
        await pong.turn()
    assert pong.client.order == [("patch", "rljobs/status")]
    assert (await another(pong, shard))["metadata"]["name"] != name
    assert await restarts(pong) == (1, 0)
    (told,) = (await pong.status())["failures"]
    assert (told["podName"], told["exitCode"], told["message"]) == (name, 9, "the disk is full")
    first = pong.run
    pong.next_operator()
    await pong.settle()
    assert await restarts(pong) == (1, 0)
    assert not [pod for pod in first.pods.of_key(pong.key) if "gone" in pod]


async def test_a_learner_that_went_while_no_operator_looked_was_disrupted(pong: OneJob) -> None:
    await pong.start(**TWO_ACTORS)
    learner = await pong.pod("learner")
    name = learner["metadata"]["name"]
    await pong.viewer.delete(PODS, pong.namespace, name, grace_seconds=0)

    pong.next_operator()
    await another(pong, learner)
    assert await restarts(pong) == (0, 1)
    (told,) = (await pong.status())["failures"]
    assert (told["podName"], told["reason"]) == (name, "Disrupted")
    await pong.start_pods()
    pong.next_operator()
    await pong.settle()
    assert await restarts(pong) == (0, 1)


async def test_a_pod_has_the_time_to_leave_that_its_template_gives(pong: OneJob) -> None:
    patient = {"podTemplate": {"spec": {"terminationGracePeriodSeconds": 900}}}
    await pong.start(learner=patient)
    await pong.patch(suspend=True)
    for _ in range(4):
        await pong.settle()
        await pong.finish_deleted(but={"learner"})
    assert (await pong.pod("learner"))["metadata"]["deletionGracePeriodSeconds"] == 900


async def test_only_pods_that_ended_by_themselves_stay_and_those_go_when_they_are_deleted(pong: OneJob) -> None:
    await pong.start(**TWO_ACTORS, backoffLimit=0)
    await pong.end("learner")
    await pong.take_down()
    await pong.expect(Failed=("True",))
    ((member, (left,)),) = (await pong.pods()).items()
    assert member == "learner", "for its logs"

    await pong.viewer.delete(PODS, pong.namespace, left["metadata"]["name"])  # a user has read them, or drains its node
    await pong.settle()
    await pong.finish_deleted()
    assert not await pong.pods()


async def test_a_sidecar_keeps_no_pod_and_its_device_after_the_end(pong: OneJob) -> None:
    """A learner fails a job for good beside a container that does not end by itself: the kubelet is told to end that, and the pod
    with the learner's log stays."""
    await pong.start(**TWO_ACTORS, backoffLimit=0)
    learner = await pong.pod("learner")
    await pong.end("learner", phase="Running")
    for _ in range(8):
        await pong.turn()
        await pong.finish_deleted()
    await pong.expect(Failed=("True",))
    left = await pong.pod("learner")
    assert (left["metadata"]["uid"], left["spec"]["activeDeadlineSeconds"]) == (learner["metadata"]["uid"], 1)
    assert "deletionTimestamp" not in left["metadata"], "its log can be read"
    await pong.end("learner", reason="DeadlineExceeded")
    await pong.settle()

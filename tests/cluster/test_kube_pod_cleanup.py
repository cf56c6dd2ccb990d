"""What a job that has failed leaves behind, on a real API server: pods to read the logs of, and none that can't go."""

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS

from tests.cluster.reconciling import (
    TWO_ACTORS,
    Kubelet,
    Run,
    bring_up,
    condition,
    started,
    status_of,
    take_down,
    written,
)


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

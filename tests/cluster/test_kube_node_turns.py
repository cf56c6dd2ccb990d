"""What the reconciler does about nodes, shards that are silent, and claims that are gone, turn by turn on a real API server."""

import time

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS, VOLUME_CLAIMS, Object
from rljob_operator.polls.poll import Alive, Silence

from tests.cluster.reconciling import TWO_ACTORS, BreakingClient, Kubelet, Run, started, status_of, written

NODE = "node-1"
"""Where the tests' kubelet runs all pods."""
WITH_CLAIM = {"redis": {"persistence": {"storage": "1Gi"}}}


def tell(run: Run, ready: str = "True") -> None:
    """The watch of nodes brings this."""
    document: Object = {"metadata": {"name": NODE}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    run.nodes.change("MODIFIED", run.nodes.keep(document))


async def test_a_silent_shard_and_a_lost_node_are_named(
    viewer: Client, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
    uid = (await kubelet.pod("pong", "replay-0"))["metadata"]["uid"]
    assert Alive(uid, "http://10.1.0.7:9090") in run.poll.followed[namespace, "pong"]

    tell(run, ready="Unknown")
    await run.turn(viewer, "pong")
    told = {each["type"]: each for each in (await status_of(viewer, namespace, "pong"))["conditions"]}
    for type in ("ReplayReady", "LearnerReady", "ActorsReady"):
        assert (told[type]["status"], told[type]["reason"]) == ("False", "NodeLost")
    assert len(await kubelet.pods("pong")) == 4

    tell(run)
    run.poll.silences[uid] = Silence(time.time() - 5.0, "does not answer")
    await run.turn(viewer, "pong")
    await run.settle(viewer, "pong")
    told = {each["type"]: each for each in (await status_of(viewer, namespace, "pong"))["conditions"]}
    assert told["ReplayReady"]["status"] == "True"
    assert "replay-0 does not answer" in told["Ready"]["message"], told["Ready"]


async def test_a_claim_that_was_deleted_while_no_operator_was_there_is_made_anew(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    await run.begin(viewer, written(namespace, "pong", **TWO_ACTORS, replay=WITH_CLAIM))
    pod = await kubelet.pod("pong", "replay-0")
    claim = await viewer.get(VOLUME_CLAIMS, namespace, "pong-replay-0")
    await viewer.patch(VOLUME_CLAIMS, namespace, "pong-replay-0", {"metadata": {"finalizers": None}})
    await viewer.delete(VOLUME_CLAIMS, namespace, "pong-replay-0")
    words = '0/3 nodes are available: persistentvolumeclaim "pong-replay-0" not found. not found'
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    name = pod["metadata"]["name"]
    await viewer.patch(PODS, namespace, name, {"status": {"conditions": [waits]}}, subresource="status")

    await Run(client, namespace).settle(viewer, "pong")
    assert (await viewer.get(VOLUME_CLAIMS, namespace, "pong-replay-0"))["metadata"]["uid"] != claim["metadata"]["uid"]
    assert [each["metadata"]["name"] for each in (await kubelet.pods("pong"))["replay-0"]] == [name]

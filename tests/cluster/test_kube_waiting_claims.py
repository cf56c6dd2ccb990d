"""A job on a cluster that makes no volumes: it says which claim waits, why, and what to do, before the scheduler's own words."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import Observation
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, VOLUME_CLAIMS, Object
from rljob_operator.kube.job.members import UNSCHEDULED_SECONDS
from rljob_operator.kube.job.observe import HELD_UP_SECONDS, Waits
from rljob_operator.kube.job.status_writer import SELDOM_SECONDS
from rljob_operator.kube.job.stored import read

from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubelet import stamped
from tests.cluster.reconciling import SETTINGS, BreakingClient, Clock, OneJob, Run, said_in, written

UNBOUND = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
ELSEWHERE = "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity."
TAINTED = "0/3 nodes are available: 3 node(s) had untolerated taint(s). preemption is not helpful."
"""What a real scheduler says where one of three nodes is lost and the others are for others."""
DEFAULT = "storageclass.kubernetes.io/is-default-class"


async def say_unscheduled(pong: OneJob, pod: Object, words: str = UNBOUND) -> None:
    """What the scheduler says of the pod."""
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    status = {"phase": "Pending", "conditions": [{**scheduled, "lastTransitionTime": stamped(time.time())}]}
    await pong.viewer.patch(PODS, pong.namespace, pod["metadata"]["name"], {"status": status}, subresource="status")


CHECKPOINTS = {"storage": {"persistentVolumeClaim": {"claimName": "mine"}}}


def claim(**spec: Any) -> Object:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine"}, "spec": asked}


def of_class(name: str) -> Object:
    return {"replay": {"redis": {"persistence": {"storageClassName": name}}}}


NO_DEFAULT = "names no StorageClass, and the cluster has no default one: "
WAITING: dict[str, tuple[str, Object, Object | None, list[str]]] = {
    "a cluster without a default class": ("replay-0", {}, None, [
        f"replay-0 (claim pong-replay-0 {NO_DEFAULT}", f"kubectl annotate storageclass NAME {DEFAULT}=true",
    ]),
    "a class without a volume": ("replay-0", of_class("fast"), None, [
        "claim pong-replay-0 has no volume of StorageClass fast: kubectl describe pvc -n {namespace} pong-replay-0 says why",
    ]),
    "a claim of the user's that is not there": ("learner", {"checkpoint": CHECKPOINTS}, None, [
        "learner (claim mine does not exist: create it in namespace {namespace}; ",
    ]),
    "a claim of the user's without a volume": ("learner", {"checkpoint": CHECKPOINTS}, claim(), [
        f"claim mine {NO_DEFAULT}", "or make the claim anew with one",
    ]),
}  # fmt: skip
"""Case -> the member that waits, the spec of its job, a claim of its user's, what is said."""


@pytest.mark.parametrize(("member", "spec", "of_user", "words"), WAITING.values(), ids=WAITING)
async def test_what_a_claim_waits_for_is_said_with_what_to_do(
    clock: Clock, pong: OneJob, member: str, spec: Object, of_user: Object | None, words: list[str]
) -> None:
    if of_user is not None:
        about = {**of_user["metadata"], "namespace": pong.namespace}
        await pong.viewer.create(VOLUME_CLAIMS, {**of_user, "metadata": about})
    await pong.begin(**spec)
    await say_unscheduled(pong, await pong.pod(member))
    clock.seconds += HELD_UP_SECONDS + 1.0
    await pong.turn()
    kind = {"learner": "LearnerReady", "replay-0": "ReplayReady"}[member]
    await pong.expect(**{kind: ("False", "Unschedulable")})
    said = await pong.message(kind)
    assert [each for each in words if each.format(namespace=pong.namespace) not in said] == []
    assert said.endswith(f"{UNBOUND})"), "the scheduler's words come after it"


async def test_a_scheduler_that_waits_for_a_volume_in_silence(clock: Clock, pong: OneJob) -> None:
    """As it does where a class binds with the first pod: until the volume is made, its pod has no condition at all."""
    await pong.begin(**of_class("slow"))
    clock.seconds += max(UNSCHEDULED_SECONDS, SELDOM_SECONDS) + 1.0  # words alone may be written so late
    await pong.settle()
    why = f"claim pong-replay-0 has no volume of StorageClass slow: kubectl describe pvc -n {pong.namespace}"
    for kind in ("ReplayReady", "Ready"):
        said = await pong.message(kind)
        assert [each for each in (why, "no scheduler has said anything of it") if each not in said] == []


async def test_other_reasons_of_the_scheduler_cost_no_call(pong: OneJob) -> None:
    await pong.begin()
    await say_unscheduled(pong, await pong.pod("replay-0"), "0/3 nodes are available: 3 Insufficient cpu.")
    await pong.settle()
    assert ("get", "persistentvolumes") not in await pong.calls()
    said = [words for _, _, words in said_in(await pong.status()).values()]
    assert any("(0/3 nodes are available: 3 Insufficient cpu.)" in words for words in said)


@pytest.fixture
def away(cluster: ControlPlane, run: Run, namespace: str) -> Iterator[str]:
    """A node that is not heard of, with a volume on it of its own name."""
    node = f"away-{namespace}"
    lost = {"metadata": {"name": node}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    run.nodes.change("MODIFIED", run.nodes.keep(lost))
    only = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    volume = {
        "capacity": {"storage": "32Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [only]}]}},
    }  # fmt: skip
    cluster.create("/api/v1/persistentvolumes", {"metadata": {"name": node}, "spec": volume})
    yield node
    cluster.request("DELETE", f"/api/v1/persistentvolumes/{node}")


@pytest.mark.parametrize("words", [ELSEWHERE, TAINTED], ids=["elsewhere", "tainted"])
async def test_a_volume_of_a_node_that_is_away_is_waited_for_with_the_command_that_gives_it_up(
    viewer: Client, clock: Clock, pong: OneJob, away: str, words: str
) -> None:
    """Whether it comes back can't be told: what the shard holds is its user's."""
    claim = (VOLUME_CLAIMS, pong.namespace, "pong-replay-0")
    await pong.begin()
    await viewer.patch(*claim, {"spec": {"volumeName": away}})
    bound = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "32Gi"}}
    await viewer.patch(*claim, {"status": bound}, subresource="status")
    pod = await pong.pod("replay-0")
    await say_unscheduled(pong, pod, words)
    clock.seconds += HELD_UP_SECONDS + 1.0
    await pong.settle()
    waits = f"the volume of claim pong-replay-0 is on node {away}, of which nothing is heard"
    for kind in ("ReplayReady", "Ready"):
        said = await pong.message(kind)
        assert waits in said
        assert f"kubectl delete pvc -n {pong.namespace} pong-replay-0" in said
    assert ("delete", "persistentvolumeclaims") not in pong.client.calls
    uid = (await viewer.get(*claim))["metadata"]["uid"]
    await viewer.delete(*claim)
    await viewer.patch(*claim, {"metadata": {"finalizers": None}})
    await say_unscheduled(pong, pod, 'persistentvolumeclaim "pong-replay-0" not found')
    pong.run.reconciler.child_gone(pong.key, uid)
    await pong.turn()
    assert "volumeName" not in (await viewer.get(*claim))["spec"], "its user gave it up, and it is made anew"


async def test_a_secret_or_config_map_that_is_not_there_is_named(
    viewer: Client, client: BreakingClient, run: Run, namespace: str
) -> None:
    """Its kubelet says so in an event alone."""
    projected = {"projected": {"sources": [{"configMap": {"name": "none-two"}}]}}
    volumes = [{"name": "data", "secret": {"secretName": "none-one"}}, {"name": "more", **projected}]
    for given, said in (
        (volumes[:1], "Secret none-one of its volumes does not exist: create it"),
        (volumes[1:], "ConfigMap none-two of its volumes does not exist"),
    ):
        name = f"pong-{said[:3].lower()}"
        stored = read(
            await viewer.create(RLJOBS, written(namespace, name, learner={"podTemplate": {"spec": {"volumes": given}}}))
        )
        await run.settle(viewer, name)
        seen = Observation(members=(Member("learner", Role.LEARNER, Phase.STARTING, 0.0, node_name="cpu-1"),))
        waits = Waits(client, stored.owned(), SETTINGS, run.nodes, run.claims.get)
        seen = await waits.told(seen, ["learner"], time.time())
        assert said in seen.members[0].waiting_message

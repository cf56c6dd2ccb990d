"""An operator with another configuration: of a running job it restarts nothing, and what it starts is as the job was started.

A release of the operator that makes other pods, on a running job; other images and settings: test_kube_configuration.py.
"""

import asyncio

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, NETWORK_POLICIES, RLJOBS, Object
from rljob_operator.kube.render import rendering
from rljob_operator.kube.render.settings import Settings

from tests.cluster.reconciling import (
    TWO_ACTORS,
    BreakingClient,
    Kubelet,
    Run,
    bring_up,
    children_of,
    condition,
    started,
    status_of,
    take_down,
    written,
)
from tests.unit.operator.kube.changed_configuration import TOGETHER, changed, started_under

EVERY_ROLE = {
    "actors": {"replicas": 1, "spot": True, "inference": "Central"},
    "inference": {"replicas": 1},
    "learner": {"accelerator": {"count": 1}},
    "evaluator": {"enabled": True},
    "backoffLimit": 99,
}
MEMBERS = {"replay-0", "learner", "inference-0", "actor-0", "evaluator"}
TRIES = 20


def look_of(pod: Object) -> Object:
    """What a pod was made like, without what tells it from the next one of its member: its node, a learner's epoch."""
    about, spec = pod["metadata"], {name: value for name, value in pod["spec"].items() if name != "nodeName"}
    for each in spec["containers"]:
        each["env"] = [variable for variable in each["env"] if variable["name"] != "RLJOB_EPOCH"]
    return {"labels": about["labels"], "annotations": about["annotations"], "spec": spec}


def uids(pods: dict[str, list[Object]]) -> dict[str, str]:
    return {member: each["metadata"]["uid"] for member, (each,) in pods.items()}


async def replace_all(run: Run, viewer: Client, kubelet: Kubelet) -> dict[str, list[Object]]:
    """Every pod of the job fails, and another one comes up in its place."""
    before = await kubelet.pods("pong")
    for (pod,) in before.values():
        await kubelet.end(pod, 1)
    for _ in range(TRIES):  # an end is followed by a start half a second later
        await run.settle(viewer, "pong")
        await kubelet.start("pong")
        after = await kubelet.pods("pong")
        if not set(uids(before).values()) & {each["metadata"]["uid"] for pods in after.values() for each in pods}:
            break
        await asyncio.sleep(0.2)
    await run.settle(viewer, "pong")
    return await kubelet.pods("pong")


async def test_no_field_of_the_configuration_reaches_a_running_job(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, namespace: str
) -> None:
    await started(Run(client, namespace, started_under()), viewer, kubelet, written(namespace, "pong", **EVERY_ROLE))
    pods, children = await kubelet.pods("pong"), await children_of(viewer, namespace, "pong")
    assert set(pods) == MEMBERS

    run = Run(client, namespace, changed(*TOGETHER))
    await run.settle(viewer, "pong")
    assert uids(await kubelet.pods("pong")) == uids(pods), "nothing is restarted"
    now = {each["metadata"]["uid"]: each for each in await children_of(viewer, namespace, "pong")}
    differ = {each["kind"] for each in children if now[each["metadata"]["uid"]] != each and each["kind"] != "Pod"}
    assert differ == {"NetworkPolicy"}
    (policy,) = (each for each in now.values() if each["kind"] == "NetworkPolicy")
    assert {"team": "watch"} in [
        each["namespaceSelector"]["matchLabels"] for each in policy["spec"]["ingress"][1]["from"]
    ], "who may read the metrics counts at once"

    after = await replace_all(run, viewer, kubelet)
    assert not set(uids(after).values()) & set(uids(pods).values())
    assert {member: look_of(each) for member, (each,) in after.items()} == {
        member: look_of(each) for member, (each,) in pods.items()
    }


async def test_a_job_comes_up_again_by_the_new_configuration_on_the_claim_that_it_had(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, namespace: str
) -> None:
    def claims_of(pod: Object) -> list[str]:
        volumes = pod["spec"]["volumes"]
        return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]

    await started(Run(client, namespace, started_under()), viewer, kubelet, written(namespace, "pong", **EVERY_ROLE))
    run = Run(client, namespace, changed("checkpointClaim.size", "requests.learner", "image"))
    await suspend(run, viewer, kubelet, namespace)
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
    await bring_up(run, viewer, kubelet, "pong")
    (learner,), (shard,) = [(await kubelet.pods("pong"))[member] for member in ("learner", "replay-0")]
    assert learner["spec"]["containers"][0]["resources"]["requests"]["memory"] == "3Gi"
    assert shard["spec"]["containers"][0]["image"] == "rl:2"
    assert claims_of(learner) == ["pong-learner"], "what it has learned is there"


async def test_a_policy_of_somebody_else_is_left_alone(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, namespace: str
) -> None:
    await started(Run(client, namespace), viewer, kubelet, written(namespace, "pong", **EVERY_ROLE))
    await viewer.delete(NETWORK_POLICIES, namespace, "pong")
    theirs = {
        "apiVersion": NETWORK_POLICIES.api_version,
        "kind": NETWORK_POLICIES.kind,
        "metadata": {"name": "pong", "namespace": namespace},
        "spec": {"podSelector": {}},
    }
    kept = await viewer.create(NETWORK_POLICIES, theirs)
    await Run(client, namespace, Settings(image="rl:1", prometheus_namespaces={"team": "watch"})).settle(viewer, "pong")
    assert await viewer.get(NETWORK_POLICIES, namespace, "pong") == kept


async def patch(viewer: Client, namespace: str, **spec: object) -> None:
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": spec})


async def configured(viewer: Client, namespace: str) -> object:
    """What roles read when they start."""
    return (await viewer.get(CONFIG_MAPS, namespace, "pong-job"))["data"]


async def suspend(run: Run, viewer: Client, kubelet: Kubelet, namespace: str) -> None:
    await patch(viewer, namespace, suspend=True)
    await take_down(run, viewer, kubelet, "pong")
    left = [pod for pods in (await kubelet.pods("pong")).values() for pod in pods]
    assert all(pod["status"]["phase"] == "Failed" for pod in left), "what had ended before stays to be read"


async def test_a_release_that_makes_other_pods_adds_none_to_those_that_run(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(Run(client, namespace), viewer, kubelet, written(namespace, "pong", backoffLimit=9, **TWO_ACTORS))
    later = rendering.version() + 1
    monkeypatch.setattr(rendering, "version", lambda: later)
    read = await configured(viewer, namespace)
    await patch(viewer, namespace, actors={"replicas": 1}, backoffLimit=7)
    await kubelet.end(await kubelet.pod("pong", "actor-1"), 1)
    for _ in range(4):
        await run.settle(viewer, "pong")
        await asyncio.sleep(0.3)
    pods = await kubelet.pods("pong")
    assert [member for member, each in pods.items() if each[0]["status"]["phase"] == "Running"] == [
        "actor-0",
        "learner",
        "replay-0",
    ]
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("False", "RenderingUnknown")
    assert status["actors"]["ready"] == 1
    assert await configured(viewer, namespace) == read

    await suspend(run, viewer, kubelet, namespace)
    await patch(viewer, namespace, suspend=False)
    await bring_up(run, viewer, kubelet, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("True", "Valid")
    assert (status["actors"]["ready"], status["controller"]["rendering"]["version"]) == (1, later)

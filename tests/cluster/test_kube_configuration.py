"""An operator with another configuration: of a running job it restarts nothing, and what it starts is as the job was started.

A release of the operator that makes other pods, on a running job; other images and settings: test_kube_configuration.py.
"""

import asyncio

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, NETWORK_POLICIES, Object
from rljob_operator.kube.render import rendering
from rljob_operator.kube.render.settings import Settings

from tests.cluster.reconciling import TWO_ACTORS, OneJob, children_of
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


async def replace_all(pong: OneJob) -> dict[str, list[Object]]:
    """Every pod of the job fails, and another one comes up in its place."""
    before = await pong.pods()
    for member in before:
        await pong.end(member)
    for _ in range(TRIES):  # an end is followed by a start half a second later
        await pong.settle()
        await pong.start_pods()
        after = await pong.pods()
        if not set(uids(before).values()) & {each["metadata"]["uid"] for pods in after.values() for each in pods}:
            break
        await asyncio.sleep(0.2)
    await pong.settle()
    return await pong.pods()


async def test_no_field_of_the_configuration_reaches_a_running_job(pong: OneJob) -> None:
    pong.next_operator(settings=started_under())
    await pong.start(**EVERY_ROLE)
    pods, children = await pong.pods(), await children_of(pong.viewer, *pong.key)
    assert set(pods) == MEMBERS

    pong.next_operator(settings=changed(*TOGETHER))
    await pong.settle()
    assert uids(await pong.pods()) == uids(pods), "nothing is restarted"
    now = {each["metadata"]["uid"]: each for each in await children_of(pong.viewer, *pong.key)}
    differ = {each["kind"] for each in children if now[each["metadata"]["uid"]] != each and each["kind"] != "Pod"}
    assert differ == {"NetworkPolicy"}
    (policy,) = (each for each in now.values() if each["kind"] == "NetworkPolicy")
    assert {"team": "watch"} in [
        each["namespaceSelector"]["matchLabels"] for each in policy["spec"]["ingress"][1]["from"]
    ], "who may read the metrics counts at once"

    after = await replace_all(pong)
    assert not set(uids(after).values()) & set(uids(pods).values())
    assert {member: look_of(each) for member, (each,) in after.items()} == {
        member: look_of(each) for member, (each,) in pods.items()
    }


async def test_a_job_comes_up_again_by_the_new_configuration_on_the_claim_that_it_had(pong: OneJob) -> None:
    pong.next_operator(settings=started_under())
    await pong.start(**EVERY_ROLE)
    pong.next_operator(settings=changed("checkpointClaim.size", "requests.learner", "image"))
    await suspend(pong)
    await pong.resume()
    learner, shard = [(await pong.pod(member))["spec"] for member in ("learner", "replay-0")]
    assert learner["containers"][0]["resources"]["requests"]["memory"] == "3Gi"
    assert shard["containers"][0]["image"] == "rl:2"
    claims = [each["persistentVolumeClaim"] for each in learner["volumes"] if "persistentVolumeClaim" in each]
    assert [each["claimName"] for each in claims] == ["pong-learner"], "what it has learned is there"


async def test_a_policy_of_somebody_else_is_left_alone(viewer: Client, pong: OneJob) -> None:
    await pong.start(**EVERY_ROLE)
    place = (NETWORK_POLICIES, *pong.key)
    await viewer.delete(*place)
    about = {"apiVersion": NETWORK_POLICIES.api_version, "kind": NETWORK_POLICIES.kind}
    metadata = {"name": "pong", "namespace": pong.namespace}
    kept = await viewer.create(NETWORK_POLICIES, {**about, "metadata": metadata, "spec": {"podSelector": {}}})
    pong.next_operator(settings=Settings(image="rl:1", prometheus_namespaces={"team": "watch"}))
    await pong.settle()
    assert await viewer.get(*place) == kept


async def configured(pong: OneJob) -> object:
    """What roles read when they start."""
    return (await pong.viewer.get(CONFIG_MAPS, pong.namespace, "pong-job"))["data"]


async def suspend(pong: OneJob) -> None:
    await pong.suspend()
    left = [pod for pods in (await pong.pods()).values() for pod in pods]
    assert all(pod["status"]["phase"] == "Failed" for pod in left), "what had ended before stays to be read"


async def test_a_release_that_makes_other_pods_adds_none_to_those_that_run(
    pong: OneJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pong.start(backoffLimit=9, **TWO_ACTORS)
    pong.next_operator()
    later = rendering.version() + 1
    monkeypatch.setattr(rendering, "version", lambda: later)
    read = await configured(pong)
    await pong.patch(actors={"replicas": 1}, backoffLimit=7)
    await pong.end("actor-1")
    for _ in range(4):
        await pong.settle()
        await asyncio.sleep(0.3)
    running = [member for member, (pod,) in (await pong.pods()).items() if pod["status"]["phase"] == "Running"]
    assert running == ["actor-0", "learner", "replay-0"]
    status = await pong.expect(Accepted=("False", "RenderingUnknown"))
    assert (status["actors"]["ready"], await configured(pong)) == (1, read)

    await suspend(pong)
    await pong.resume()
    status = await pong.expect(Accepted=("True", "Valid"))
    assert (status["actors"]["ready"], status["controller"]["rendering"]["version"]) == (1, later)

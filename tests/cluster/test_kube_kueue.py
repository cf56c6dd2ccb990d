"""Jobs that name a queue: held until Kueue admits their Workload, suspended when it is evicted, out of the queue at the end."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rljob.api.learner_status import CheckpointStatement
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import (
    FLAVORS,
    PRIORITY_CLASSES,
    RLJOBS,
    WORKLOAD_PRIORITIES,
    WORKLOADS,
    Object,
    Resource,
)
from rljob_operator.kube.process import rbac
from rljob_operator.kube.render.workload import PRIORITY_LABEL, QUEUE_LABEL, WORKLOAD_ANNOTATION
from rljob_operator.kube.watch.workloads import Workloads
from rljob_operator.polls.poll import Answer

from tests.cluster.conftest import times_of
from tests.cluster.control_plane import ControlPlane, meanwhile, until
from tests.cluster.kueue import Kueue, QueuedRun
from tests.cluster.operator_program import operator_program
from tests.cluster.reconciling import (
    BreakingClient,
    Clock,
    Kubelet,
    Run,
    bring_up,
    condition,
    conditions,
    message,
    started,
    status_of,
    take_down,
    written,
)

TWENTY = {"actors": {"replicas": 20}}
CORE = {"replay": 1, "learner": 1, "actor": 1}
STORAGE = {"storage": {"persistentVolumeClaim": {"claimName": "checkpoints"}}}
TOLERATION = {"key": "pool", "operator": "Equal", "value": "b", "effect": "NoSchedule"}


@pytest.fixture
def run(request: pytest.FixtureRequest, with_kueue: ControlPlane, client: BreakingClient, namespace: str) -> QueuedRun:
    """An operator that asks Kueue."""
    return QueuedRun(client, namespace, **times_of(request))


@pytest.fixture
def queue(with_kueue: ControlPlane, viewer: Client, namespace: str) -> Kueue:
    return Kueue(viewer, namespace)


def queued(namespace: str, name: str = "pong", **spec: Any) -> Object:
    """A job in the queue ``team``."""
    found = written(namespace, name, **spec)
    return {**found, "metadata": {**found["metadata"], "labels": {QUEUE_LABEL: "team"}}}


def make(cluster: ControlPlane, resource: Resource, name: str, **fields: Any) -> None:
    """An object of the whole cluster."""
    about = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
    cluster.create(resource.path(None), {**about, **fields})


async def spec_of(kubelet: Kubelet, member: str) -> Object:
    return dict((await kubelet.pod("pong", member))["spec"])


async def workloads_of_actors(kubelet: Kubelet) -> dict[str, int]:
    """Workload -> actors whose pods name it."""
    found: dict[str, int] = {}
    for member, pods in (await kubelet.pods("pong")).items():
        if member.startswith("actor"):
            used = pods[0]["metadata"]["annotations"][WORKLOAD_ANNOTATION]
            found[used] = found.get(used, 0) + 1
    return found


async def test_a_cluster_without_kueue_is_told_at_the_start(
    cluster: ControlPlane, viewer: Client, kubelet: Kubelet, namespace: str, tmp_path: Path
) -> None:
    """And a job with the label is held, with the same words; one without it is not."""
    config = tmp_path / "config.yaml"
    config.write_text("kueue: {enabled: true}\n")

    async def told() -> bool:
        return all([(await status_of(viewer, namespace, name)).get("conditions") for name in ("pong", "other")])

    await viewer.create(RLJOBS, queued(namespace))
    await viewer.create(RLJOBS, written(namespace, "other"))
    async with operator_program(cluster.kubeconfig, namespace, tmp_path / "log", f"--config={config}") as program:
        await until("both being told", told, 20.0, program.log)
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Admitted") == ("False", "WaitingForQuota")
    assert "install Kueue, or set kueue.enabled: false" in message(status, "Admitted")
    assert condition(await status_of(viewer, namespace, "other"), "Admitted") == ("True", "NotManaged")
    assert not await kubelet.pods("pong")


async def test_without_kueue_in_the_configuration_the_label_has_no_effect(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, namespace: str
) -> None:
    await viewer.create(RLJOBS, queued(namespace))
    await Run(client, namespace).settle(viewer, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Admitted") == ("True", "NotManaged")
    assert "has no effect: kueue.enabled was not set" in message(status, "Admitted")
    assert await kubelet.pods("pong")


async def test_it_waits_for_its_core_and_then_for_blocks_of_actors(
    with_kueue: ControlPlane,
    viewer: Client,
    client: BreakingClient,
    kubelet: Kubelet,
    queue: Kueue,
    clock: Clock,
    run: QueuedRun,
    namespace: str,
) -> None:
    job = await run.begin(viewer, queued(namespace, **TWENTY))
    assert await queue.asked_for() == {"pong": CORE}
    stored = await queue.get("pong")
    assert stored["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert stored["spec"]["queueName"] == "team"
    learner = next(each for each in stored["spec"]["podSets"] if each["name"] == "learner")["template"]["spec"]
    assert learner["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    await queue.keep_waiting("pong", "insufficient quota for cpu in flavor a")
    clock.seconds += 31.0  # other words alone are not written sooner
    await run.settle(viewer, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Admitted") == ("False", "WaitingForQuota")
    assert message(status, "Admitted") == "queue team: insufficient quota for cpu in flavor a"
    assert condition(status, "Ready") == ("False", "WaitingForQuota")
    assert not await kubelet.pods("pong")

    for name in ("a", "b"):
        spec = {"nodeLabels": {"pool": name}, "tolerations": [{**TOLERATION, "value": name}]}
        make(with_kueue, FLAVORS, name, spec=spec)
    await queue.admit("pong", "a")
    await bring_up(run, viewer, kubelet, "pong")
    assert await queue.asked_for() == {"pong": CORE, "pong.actors-0": {"actor": 16}, "pong.actors-1": {"actor": 3}}
    assert sorted(await kubelet.pods("pong")) == ["actor-0", "learner", "replay-0"], "no more has quota"
    status = await status_of(viewer, namespace, "pong")
    assert status["admission"] == {"workload": "pong", "actorBlocks": 0, "pendingBlocks": 2}
    assert condition(status, "ScalingLimited") == ("True", "QuotaLimited")
    assert await queue.says("pong", "PodsReady") == ("True", "Started")
    assert (await spec_of(kubelet, "learner"))["nodeSelector"] == {"pool": "a"}

    check = {"name": "provision", "state": "Ready", "message": "",
             "podSetUpdates": [{"name": "actor", "annotations": {"consume": "it"}}]}  # fmt: skip
    await queue.admit("pong.actors-0", "b", [check])
    await bring_up(run, viewer, kubelet, "pong")
    assert await workloads_of_actors(kubelet) == {"pong": 1, "pong.actors-0": 16}
    spec = await spec_of(kubelet, "actor-5")
    assert spec["nodeSelector"] == {"pool": "b"}
    assert {**TOLERATION, "value": "b"} in spec["tolerations"]
    assert (await kubelet.pod("pong", "actor-5"))["metadata"]["annotations"]["consume"] == "it"
    await queue.admit("pong.actors-1")
    await bring_up(run, viewer, kubelet, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert (status["actors"]["ready"], status["admission"]["actorBlocks"]) == (20, 2)
    assert condition(status, "ScalingLimited") == ("False", "DesiredWithinRange")
    again = QueuedRun(client, namespace)  # an operator that starts anew finds all as it should be
    await again.settle(viewer, "pong", turns=2)
    assert await workloads_of_actors(kubelet) == {"pong": 1, "pong.actors-0": 16, "pong.actors-1": 3}


async def test_fewer_actors_give_a_block_back_when_they_are_gone(
    viewer: Client, kubelet: Kubelet, queue: Kueue, run: QueuedRun, namespace: str
) -> None:
    await viewer.create(RLJOBS, queued(namespace, **TWENTY))
    await admit_all(run, viewer, kubelet, queue)
    await run.change(viewer, "pong", actors={"replicas": 17})
    assert "pong.actors-1" in await queue.asked_for(), "its actors are on their way out"
    await kubelet.finish_deleted("pong")
    await run.settle(viewer, "pong")
    assert sorted(await queue.asked_for()) == ["pong", "pong.actors-0"]
    await run.change(viewer, "pong", actors={"replicas": 18})
    assert (await queue.asked_for())["pong.actors-1"] == {"actor": 1}


async def test_a_block_that_is_evicted_takes_its_own_actors_away(
    viewer: Client, kubelet: Kubelet, queue: Kueue, run: QueuedRun, namespace: str
) -> None:
    await viewer.create(RLJOBS, queued(namespace, **TWENTY))
    await admit_all(run, viewer, kubelet, queue)
    await queue.evict("pong.actors-0")
    await run.settle(viewer, "pong")
    assert await queue.says("pong.actors-0", "QuotaReserved") == ("True", "Admitted"), "16 pods still use it"
    await kubelet.finish_deleted("pong")
    await run.settle(viewer, "pong")
    assert await queue.says("pong.actors-0", "QuotaReserved") == ("False", "Pending")
    assert await workloads_of_actors(kubelet) == {"pong": 1, "pong.actors-1": 3}
    assert condition(await status_of(viewer, namespace, "pong"), "Admitted") == ("True", "QuotaReserved")


async def test_a_block_is_up_once_one_of_its_actors_is(
    viewer: Client, kubelet: Kubelet, queue: Kueue, run: QueuedRun, namespace: str
) -> None:
    """Kueue takes quota away whose pods are not up in time, and actors of which one never comes up are of use all the same."""
    await run.begin(viewer, queued(namespace, **TWENTY))
    await queue.admit("pong")
    await bring_up(run, viewer, kubelet, "pong")
    for block in ("pong.actors-0", "pong.actors-1"):
        await queue.admit(block)
    await run.settle(viewer, "pong")
    assert len(await workloads_of_actors(kubelet)) == 3
    assert await queue.says("pong.actors-0", "PodsReady") == ("", "")
    await kubelet.start("pong", "actor-1")
    await run.settle(viewer, "pong")
    assert await queue.says("pong.actors-0", "PodsReady") == ("True", "Started")
    assert await queue.says("pong.actors-1", "PodsReady") == ("", "")


async def admit_all(run: QueuedRun, viewer: Client, kubelet: Kubelet, queue: Kueue) -> None:
    """Whatever is asked for is had, until the job is up."""
    admitted: set[str] = set()
    for _ in range(3):
        await run.settle(viewer, "pong")
        for name in set(await queue.asked_for()) - admitted:
            await queue.admit(name)
            admitted.add(name)
        await bring_up(run, viewer, kubelet, "pong")


@pytest.mark.parametrize("how", ["evicted", "deactivated"])
async def test_an_eviction_suspends_the_job_after_a_checkpoint(
    viewer: Client, kubelet: Kubelet, queue: Kueue, clock: Clock, run: QueuedRun, namespace: str, how: str
) -> None:
    await viewer.create(RLJOBS, queued(namespace, checkpoint=STORAGE))
    await admit_all(run, viewer, kubelet, queue)
    clock.seconds, clock.updates = 10.0, 500
    run.poll.answers[namespace, "pong"] = clock.answer()
    await run.settle(viewer, "pong")
    if how == "evicted":
        await queue.evict("pong")
    else:
        await viewer.patch(WORKLOADS, namespace, "pong", {"spec": {"active": False}})
        await queue.evict("pong", "Deactivated", "The workload is deactivated")
    await run.settle(viewer, "pong")
    await kubelet.finish_deleted("pong")
    await run.settle(viewer, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert conditions(status, "Suspended", "Admitted") == [("False", "Checkpointing"), ("False", "Evicted")]
    assert "learner" in await kubelet.pods("pong")
    assert await queue.says("pong", "QuotaReserved") == ("True", "Admitted"), "the learner still uses it"
    clock.seconds += 5.0
    saved = CheckpointStatement(
        step=500, path="pvc://checkpoints/step-500", digest="sha256:1", state="Valid", written_unix=clock.now()
    )
    said = replace(clock.answer().status, checkpoint=saved)  # type: ignore[type-var]
    run.poll.answers[namespace, "pong"] = Answer(said, "")  # type: ignore[arg-type]
    await take_down(run, viewer, kubelet, "pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Suspended") == ("True", "QuotaEvicted")
    assert not await kubelet.pods("pong")
    assert not (await viewer.get(RLJOBS, namespace, "pong"))["spec"].get("suspend")
    assert await queue.says("pong", "QuotaReserved") == ("False", "Pending")
    assert not (await queue.get("pong"))["status"].get("admission")
    queues_again = "True" if how == "evicted" else "False"
    assert (await queue.says("pong", "Requeued"))[0] == queues_again
    if how == "deactivated":
        await viewer.patch(WORKLOADS, namespace, "pong", {"spec": {"active": True}})
    await queue.admit("pong")
    await run.settle(viewer, "pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Ready") == ("False", "Restoring")
    assert await kubelet.pods("pong")


async def test_suspended_by_its_user_it_leaves_the_queue_and_at_its_end_too(
    viewer: Client, kubelet: Kubelet, queue: Kueue, clock: Clock, run: QueuedRun, namespace: str
) -> None:
    await viewer.create(RLJOBS, queued(namespace, successPolicy={"rawFrames": 100}))
    await admit_all(run, viewer, kubelet, queue)
    uid = (await queue.get("pong"))["metadata"]["uid"]
    await run.change(viewer, "pong", suspend=True)
    assert await queue.asked_for(), "its pods are on their way out"
    await take_down(run, viewer, kubelet, "pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Suspended") == ("True", "UserRequested")
    assert not await queue.asked_for()
    await run.change(viewer, "pong", suspend=False, learner={"resources": {"requests": {"cpu": "3"}}})
    assert (await queue.get("pong"))["metadata"]["uid"] != uid
    assert not await kubelet.pods("pong")
    await admit_all(run, viewer, kubelet, queue)
    clock.updates = 1000
    run.poll.answers[namespace, "pong"] = clock.answer()
    await take_down(run, viewer, kubelet, "pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Complete")[0] == "True"
    assert await queue.says("pong", "Finished") == ("True", "Succeeded")


async def test_one_that_waits_asks_anew_for_what_is_wanted_now(
    viewer: Client, kubelet: Kubelet, queue: Kueue, run: QueuedRun, namespace: str
) -> None:
    await run.begin(viewer, queued(namespace))
    await viewer.patch(RLJOBS, namespace, "pong", {"metadata": {"labels": {QUEUE_LABEL: "other"}}})
    await run.settle(viewer, "pong")
    assert (await queue.get("pong"))["spec"]["queueName"] == "other"
    await viewer.patch(RLJOBS, namespace, "pong", {"metadata": {"labels": {QUEUE_LABEL: None}}})
    await run.settle(viewer, "pong")
    assert not await queue.asked_for()
    assert await kubelet.pods("pong"), "it queues no more"


async def test_its_priority_is_that_of_its_label_else_of_its_pods(
    with_kueue: ControlPlane, viewer: Client, client: BreakingClient, queue: Kueue, run: QueuedRun, namespace: str
) -> None:
    """Kueue gives a Workload that another client has made the priority 0 unless it is told another one."""
    make(with_kueue, WORKLOAD_PRIORITIES, f"{namespace}-urgent", value=1000)
    make(with_kueue, PRIORITY_CLASSES, f"{namespace}-high", value=70)
    await run.begin(
        viewer, queued(namespace, learner={"podTemplate": {"spec": {"priorityClassName": f"{namespace}-high"}}})
    )
    assert (await queue.get("pong"))["spec"]["priority"] == 70
    await viewer.patch(RLJOBS, namespace, "pong", {"metadata": {"labels": {PRIORITY_LABEL: f"{namespace}-urgent"}}})
    await run.settle(viewer, "pong")
    found = (await queue.get("pong"))["spec"]
    assert (found["priority"], found["priorityClassRef"]["kind"]) == (1000, "WorkloadPriorityClass")
    await viewer.patch(RLJOBS, namespace, "pong", {"metadata": {"labels": {PRIORITY_LABEL: "no-such"}}})
    await run.settle(viewer, "pong")
    assert not await queue.asked_for(), "as Kueue itself does it"
    said = message(await status_of(viewer, namespace, "pong"), "Admitted")
    assert "WorkloadPriorityClass no-such is missing, or the operator may not read it" in said


async def test_a_job_with_the_name_of_anothers_block_queues_beside_it(
    viewer: Client, queue: Kueue, run: QueuedRun, namespace: str
) -> None:
    for name in ("pong-actors-0", "pong"):
        await run.begin(viewer, queued(namespace, name, **TWENTY))
    await queue.admit("pong")
    await run.settle(viewer, "pong")
    assert sorted(await queue.asked_for()) == ["pong", "pong-actors-0", "pong.actors-0", "pong.actors-1"]


async def test_a_job_that_runs_goes_on_when_kueue_is_turned_on(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, queue: Kueue, run: QueuedRun, namespace: str
) -> None:
    await started(Run(client, namespace), viewer, kubelet, queued(namespace))
    await run.settle(viewer, "pong")
    assert not await queue.asked_for()
    assert not [
        p for pods in (await kubelet.pods("pong")).values() for p in pods if "deletionTimestamp" in p["metadata"]
    ]
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": True}})
    await take_down(run, viewer, kubelet, "pong")
    await run.change(viewer, "pong", suspend=False)
    assert await queue.asked_for() == {"pong": CORE}


async def test_a_strangers_workload_is_named_and_not_used(viewer: Client, run: QueuedRun, namespace: str) -> None:
    sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "a"}]}}}]
    about = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind}
    place = {"name": "pong", "namespace": namespace}
    await viewer.create(WORKLOADS, {**about, "metadata": place, "spec": {"queueName": "q", "podSets": sets}})
    await viewer.create(RLJOBS, queued(namespace))
    await run.turn(viewer, "pong")
    said = message(await status_of(viewer, namespace, "pong"), "Admitted")
    assert "the name of Workload pong belongs to another owner" in said


async def test_while_nobody_knows_the_queue_what_runs_goes_on(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, queue: Kueue, run: QueuedRun, namespace: str
) -> None:
    """As in an operator that has just started."""
    await viewer.create(RLJOBS, queued(namespace))
    await admit_all(run, viewer, kubelet, queue)
    before = {member: pods[0]["metadata"]["uid"] for member, pods in (await kubelet.pods("pong")).items()}
    again = QueuedRun(client, namespace)
    again.cache.why = "not known yet"
    await viewer.create(RLJOBS, queued(namespace, "new"))
    for name in ("pong", "new"):
        await again.settle(viewer, name)
    assert {member: pods[0]["metadata"]["uid"] for member, pods in (await kubelet.pods("pong")).items()} == before
    assert not await kubelet.pods("new")
    assert message(await status_of(viewer, namespace, "new"), "Admitted") == "not known yet"


async def test_workloads_are_found_and_watched(viewer: Client, queue: Kueue, run: QueuedRun, namespace: str) -> None:
    await run.begin(viewer, queued(namespace))
    told: list[tuple[str, str]] = []
    listed = asyncio.Event()
    cache = Workloads(viewer, [namespace], told.append, listed.set)
    async with meanwhile(cache.run()):
        await asyncio.wait_for(listed.wait(), 10.0)
        await until("being known", lambda: not cache.why, 5.0)
        assert told == [(namespace, "pong")]
        told.clear()
        await queue.admit("pong")
        await until("the change", lambda: bool(told), 5.0)
        assert told == [(namespace, "pong")]


def test_every_grant_is_for_something_that_is_there(with_kueue: ControlPlane) -> None:
    known = {
        each["name"]: each["verbs"]
        for each in with_kueue.request("GET", f"/apis/{WORKLOADS.group}/{WORKLOADS.version}")[1]["resources"]
    }
    grants = [grant for grant in rbac.TABLE if grant.group == WORKLOADS.group]
    assert {resource for grant in grants for resource in grant.resources} <= set(known)
    for grant in grants:
        for resource in grant.resources:
            assert set(grant.verbs) <= set(known[resource])

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
    PODS,
    PRIORITY_CLASSES,
    RLJOBS,
    WORKLOAD_PRIORITIES,
    WORKLOADS,
    Object,
    Resource,
)
from rljob_operator.kube.process import rbac
from rljob_operator.kube.render.names import JOB_LABEL
from rljob_operator.kube.render.others import PRIORITY_LABEL, QUEUE_LABEL, WORKLOAD_ANNOTATION
from rljob_operator.kube.watch.kept import Workloads
from rljob_operator.polls.poll import Answer

from tests.cluster.conftest import times_of
from tests.cluster.control_plane import ControlPlane, meanwhile, until
from tests.cluster.kueue import Kueue, QueuedRun
from tests.cluster.operator_program import operator_program
from tests.cluster.reconciling import BreakingClient, Clock, OneJob, Run, said_in, status_of, written

TWENTY = {"actors": {"replicas": 20}}
CORE = {"replay": 1, "learner": 1, "actor": 1}
STORAGE = {"storage": {"persistentVolumeClaim": {"claimName": "checkpoints"}}}
TOLERATION = {"key": "pool", "operator": "Equal", "value": "b", "effect": "NoSchedule"}


@pytest.fixture
def run(request: pytest.FixtureRequest, with_kueue: ControlPlane, client: BreakingClient, namespace: str) -> QueuedRun:
    """An operator that asks Kueue."""
    return QueuedRun(client, namespace, **times_of(request))


@pytest.fixture
def pong(pong: OneJob) -> OneJob:
    """It is created in the queue ``team``."""
    pong.labels = {QUEUE_LABEL: "team"}
    return pong


@pytest.fixture
def queue(with_kueue: ControlPlane, viewer: Client, namespace: str) -> Kueue:
    return Kueue(viewer, namespace)


def queued(namespace: str, name: str, **spec: Any) -> Object:
    """A job in the queue ``team``."""
    return written(namespace, name, {QUEUE_LABEL: "team"}, **spec)


def make(cluster: ControlPlane, resource: Resource, name: str, **fields: Any) -> None:
    """An object of the whole cluster."""
    about = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
    cluster.create(resource.path(None), {**about, **fields})


async def workloads_of_actors(pong: OneJob) -> dict[str, int]:
    """Workload -> actors whose pods name it."""
    found: dict[str, int] = {}
    for member, pods in (await pong.pods()).items():
        if member.startswith("actor"):
            used = pods[0]["metadata"]["annotations"][WORKLOAD_ANNOTATION]
            found[used] = found.get(used, 0) + 1
    return found


async def test_a_cluster_without_kueue_is_told_at_the_start(
    cluster: ControlPlane, viewer: Client, namespace: str, tmp_path: Path
) -> None:
    """And a job with the label is held, with the same words; one without it is not."""
    config = tmp_path / "config.yaml"
    config.write_text("kueue: {enabled: true}\n")

    async def told() -> bool:
        return all([(await status_of(viewer, namespace, name)).get("conditions") for name in ("pong", "other")])

    await viewer.create(RLJOBS, queued(namespace, "pong"))
    await viewer.create(RLJOBS, written(namespace, "other"))
    async with operator_program(cluster.kubeconfig, namespace, tmp_path / "log", f"--config={config}") as program:
        await until("both being told", told, 20.0, program.log)
    held, other = [said_in(await status_of(viewer, namespace, name))["Admitted"] for name in ("pong", "other")]
    assert (held[:2], other[:2]) == (("False", "WaitingForQuota"), ("True", "NotManaged"))
    assert "install Kueue, or set kueue.enabled: false" in held[2]
    assert not (await viewer.list(PODS, namespace, label_selector=f"{JOB_LABEL}=pong")).items


async def test_without_kueue_in_the_configuration_the_label_has_no_effect(client: BreakingClient, pong: OneJob) -> None:
    pong.run = Run(client, pong.namespace)
    await pong.begin()
    await pong.expect(Admitted=("True", "NotManaged"))
    assert "has no effect: kueue.enabled was not set" in await pong.message("Admitted")
    assert await pong.pods()


async def test_it_waits_for_its_core_and_then_for_blocks_of_actors(
    with_kueue: ControlPlane, queue: Kueue, clock: Clock, pong: OneJob
) -> None:
    job = await pong.begin(**TWENTY)
    assert await queue.asked_for() == {"pong": CORE}
    stored = await queue.get("pong")
    assert stored["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert stored["spec"]["queueName"] == "team"
    learner = next(each for each in stored["spec"]["podSets"] if each["name"] == "learner")["template"]["spec"]
    assert learner["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    await queue.keep_waiting("pong", "insufficient quota for cpu in flavor a")
    clock.seconds += 31.0  # other words alone are not written sooner
    await pong.settle()
    waits = ("False", "WaitingForQuota")
    await pong.expect(Admitted=(*waits, "queue team: insufficient quota for cpu in flavor a"), Ready=waits)
    assert not await pong.pods()

    for name in ("a", "b"):
        spec = {"nodeLabels": {"pool": name}, "tolerations": [{**TOLERATION, "value": name}]}
        make(with_kueue, FLAVORS, name, spec=spec)
    await queue.admit("pong", "a")
    await pong.bring_up()
    assert await queue.asked_for() == {"pong": CORE, "pong.actors-0": {"actor": 16}, "pong.actors-1": {"actor": 3}}
    assert sorted(await pong.pods()) == ["actor-0", "learner", "replay-0"], "no more has quota"
    status = await pong.expect(ScalingLimited=("True", "QuotaLimited"))
    assert status["admission"] == {"workload": "pong", "actorBlocks": 0, "pendingBlocks": 2}
    assert await queue.says("pong", "PodsReady") == ("True", "Started")
    assert (await pong.pod("learner"))["spec"]["nodeSelector"] == {"pool": "a"}

    check = {"name": "provision", "state": "Ready", "message": "",
             "podSetUpdates": [{"name": "actor", "annotations": {"consume": "it"}}]}  # fmt: skip
    await queue.admit("pong.actors-0", "b", [check])
    await pong.bring_up()
    assert await workloads_of_actors(pong) == {"pong": 1, "pong.actors-0": 16}
    actor = await pong.pod("actor-5")
    assert (actor["spec"]["nodeSelector"], actor["metadata"]["annotations"]["consume"]) == ({"pool": "b"}, "it")
    assert {**TOLERATION, "value": "b"} in actor["spec"]["tolerations"]
    await queue.admit("pong.actors-1")
    await pong.bring_up()
    status = await pong.expect(ScalingLimited=("False", "DesiredWithinRange"))
    assert (status["actors"]["ready"], status["admission"]["actorBlocks"]) == (20, 2)
    pong.next_operator()  # one that starts anew finds all as it should be
    await pong.settle()
    assert await workloads_of_actors(pong) == {"pong": 1, "pong.actors-0": 16, "pong.actors-1": 3}


async def test_fewer_actors_give_a_block_back_when_they_are_gone(queue: Kueue, pong: OneJob) -> None:
    await pong.create(**TWENTY)
    await admit_all(queue, pong)
    await pong.change(actors={"replicas": 17})
    assert "pong.actors-1" in await queue.asked_for(), "its actors are on their way out"
    await pong.finish_deleted()
    await pong.settle()
    assert sorted(await queue.asked_for()) == ["pong", "pong.actors-0"]
    await pong.change(actors={"replicas": 18})
    assert (await queue.asked_for())["pong.actors-1"] == {"actor": 1}


async def test_a_block_that_is_evicted_takes_its_own_actors_away(queue: Kueue, pong: OneJob) -> None:
    await pong.create(**TWENTY)
    await admit_all(queue, pong)
    await queue.evict("pong.actors-0")
    await pong.settle()
    assert await queue.says("pong.actors-0", "QuotaReserved") == ("True", "Admitted"), "16 pods still use it"
    await pong.finish_deleted()
    await pong.settle()
    assert await queue.says("pong.actors-0", "QuotaReserved") == ("False", "Pending")
    assert await workloads_of_actors(pong) == {"pong": 1, "pong.actors-1": 3}
    await pong.expect(Admitted=("True", "QuotaReserved"))


async def test_a_block_is_up_once_one_of_its_actors_is(queue: Kueue, pong: OneJob) -> None:
    """Kueue takes quota away whose pods are not up in time, and actors of which one never comes up are of use all the same."""
    await pong.begin(**TWENTY)
    await queue.admit("pong")
    await pong.bring_up()
    for block in ("pong.actors-0", "pong.actors-1"):
        await queue.admit(block)
    await pong.settle()
    assert len(await workloads_of_actors(pong)) == 3
    assert await queue.says("pong.actors-0", "PodsReady") == ("", "")
    await pong.start_pods("actor-1")
    await pong.settle()
    assert await queue.says("pong.actors-0", "PodsReady") == ("True", "Started")
    assert await queue.says("pong.actors-1", "PodsReady") == ("", "")


async def admit_all(queue: Kueue, pong: OneJob) -> None:
    """Whatever is asked for is had, until the job is up."""
    admitted: set[str] = set()
    for _ in range(3):
        await pong.settle()
        for name in set(await queue.asked_for()) - admitted:
            await queue.admit(name)
            admitted.add(name)
        await pong.bring_up()


@pytest.mark.parametrize("how", ["evicted", "deactivated"])
async def test_an_eviction_suspends_the_job_after_a_checkpoint(
    queue: Kueue, clock: Clock, pong: OneJob, how: str
) -> None:
    await pong.create(checkpoint=STORAGE)
    await admit_all(queue, pong)
    pong.learns(10.0, 500)
    await pong.settle()
    if how == "evicted":
        await queue.evict("pong")
    else:
        await pong.viewer.patch(WORKLOADS, *pong.key, {"spec": {"active": False}})
        await queue.evict("pong", "Deactivated", "The workload is deactivated")
    await pong.settle()
    await pong.finish_deleted()
    await pong.settle()
    await pong.expect(Suspended=("False", "Checkpointing"), Admitted=("False", "Evicted"))
    assert "learner" in await pong.pods()
    assert await queue.says("pong", "QuotaReserved") == ("True", "Admitted"), "the learner still uses it"
    clock.seconds += 5.0
    saved = CheckpointStatement(
        step=500, path="pvc://checkpoints/step-500", digest="sha256:1", state="Valid", written_unix=clock.now()
    )
    said = replace(clock.answer().status, checkpoint=saved)  # type: ignore[type-var]
    pong.run.poll.answers[pong.key] = Answer(said, "")  # type: ignore[arg-type]
    await pong.take_down()
    await pong.expect(Suspended=("True", "QuotaEvicted"))
    assert not await pong.pods()
    assert not (await pong.viewer.get(RLJOBS, *pong.key))["spec"].get("suspend")
    assert await queue.says("pong", "QuotaReserved") == ("False", "Pending")
    assert not (await queue.get("pong"))["status"].get("admission")
    queues_again = "True" if how == "evicted" else "False"
    assert (await queue.says("pong", "Requeued"))[0] == queues_again
    if how == "deactivated":
        await pong.viewer.patch(WORKLOADS, *pong.key, {"spec": {"active": True}})
    await queue.admit("pong")
    await pong.settle()
    await pong.expect(Ready=("False", "Restoring"))
    assert await pong.pods()


async def test_suspended_by_its_user_it_leaves_the_queue_and_at_its_end_too(
    queue: Kueue, clock: Clock, pong: OneJob
) -> None:
    await pong.create(successPolicy={"rawFrames": 100})
    await admit_all(queue, pong)
    uid = (await queue.get("pong"))["metadata"]["uid"]
    await pong.change(suspend=True)
    assert await queue.asked_for(), "its pods are on their way out"
    await pong.take_down()
    await pong.expect(Suspended=("True", "UserRequested"))
    assert not await queue.asked_for()
    await pong.change(suspend=False, learner={"resources": {"requests": {"cpu": "3"}}})
    assert (await queue.get("pong"))["metadata"]["uid"] != uid
    assert not await pong.pods()
    await admit_all(queue, pong)
    pong.learns(updates=1000)
    await pong.take_down()
    await pong.expect(Complete=("True",))
    assert await queue.says("pong", "Finished") == ("True", "Succeeded")


async def relabel(pong: OneJob, label: str, value: str | None) -> None:
    """Its user changes a label, and turns follow."""
    await pong.viewer.patch(RLJOBS, *pong.key, {"metadata": {"labels": {label: value}}})
    await pong.settle()


async def test_one_that_waits_asks_anew_for_what_is_wanted_now(queue: Kueue, pong: OneJob) -> None:
    await pong.begin()
    await relabel(pong, QUEUE_LABEL, "other")
    assert (await queue.get("pong"))["spec"]["queueName"] == "other"
    await relabel(pong, QUEUE_LABEL, None)
    assert not await queue.asked_for()
    assert await pong.pods(), "it queues no more"


async def test_its_priority_is_that_of_its_label_else_of_its_pods(
    with_kueue: ControlPlane, queue: Kueue, pong: OneJob, namespace: str
) -> None:
    """Kueue gives a Workload that another client has made the priority 0 unless it is told another one."""
    make(with_kueue, WORKLOAD_PRIORITIES, f"{namespace}-urgent", value=1000)
    make(with_kueue, PRIORITY_CLASSES, f"{namespace}-high", value=70)
    await pong.begin(learner={"podTemplate": {"spec": {"priorityClassName": f"{namespace}-high"}}})
    assert (await queue.get("pong"))["spec"]["priority"] == 70
    await relabel(pong, PRIORITY_LABEL, f"{namespace}-urgent")
    found = (await queue.get("pong"))["spec"]
    assert (found["priority"], found["priorityClassRef"]["kind"]) == (1000, "WorkloadPriorityClass")
    await relabel(pong, PRIORITY_LABEL, "no-such")
    assert not await queue.asked_for(), "as Kueue itself does it"
    said = await pong.message("Admitted")
    assert "WorkloadPriorityClass no-such is missing, or the operator may not read it" in said


async def test_a_job_with_the_name_of_anothers_block_queues_beside_it(queue: Kueue, pong: OneJob) -> None:
    await pong.viewer.create(RLJOBS, queued(pong.namespace, "pong-actors-0", **TWENTY))
    await pong.run.settle(pong.viewer, "pong-actors-0")
    await pong.begin(**TWENTY)
    await queue.admit("pong")
    await pong.settle()
    assert sorted(await queue.asked_for()) == ["pong", "pong-actors-0", "pong.actors-0", "pong.actors-1"]


async def test_a_job_that_runs_goes_on_when_kueue_is_turned_on(
    client: BreakingClient, queue: Kueue, run: QueuedRun, pong: OneJob
) -> None:
    pong.run = Run(client, pong.namespace)
    await pong.start()
    pong.run = run
    await pong.settle()
    assert not await queue.asked_for()
    assert not [p for pods in (await pong.pods()).values() for p in pods if "deletionTimestamp" in p["metadata"]]
    await pong.suspend()
    await pong.change(suspend=False)
    assert await queue.asked_for() == {"pong": CORE}


async def test_a_strangers_workload_is_named_and_not_used(pong: OneJob) -> None:
    sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "a"}]}}}]
    about = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind}
    place = {"name": "pong", "namespace": pong.namespace}
    await pong.viewer.create(WORKLOADS, {**about, "metadata": place, "spec": {"queueName": "q", "podSets": sets}})
    await pong.create()
    await pong.turn()
    assert "Workload pong of this namespace belongs to no owner" in await pong.message("Admitted")


async def test_while_nobody_knows_the_queue_what_runs_goes_on(
    client: BreakingClient, queue: Kueue, pong: OneJob, namespace: str
) -> None:
    """As in an operator that has just started."""
    await pong.create()
    await admit_all(queue, pong)
    before = {member: pods[0]["metadata"]["uid"] for member, pods in (await pong.pods()).items()}
    unknowing = QueuedRun(client, namespace)
    unknowing.cache.why = "not known yet"
    pong.run, new = unknowing, OneJob(pong.viewer, client, unknowing, "new")
    new.labels = pong.labels
    await pong.settle()
    await new.begin()
    assert {member: pods[0]["metadata"]["uid"] for member, pods in (await pong.pods()).items()} == before
    assert (await new.pods(), await new.message("Admitted")) == ({}, "not known yet")


async def test_workloads_are_found_and_watched(queue: Kueue, pong: OneJob) -> None:
    await pong.begin()
    told: list[tuple[str, str]] = []
    listed = asyncio.Event()
    cache = Workloads(pong.viewer, [pong.namespace], told.append, listed.set)
    async with meanwhile(cache.run()):
        await asyncio.wait_for(listed.wait(), 10.0)
        await until("being known", lambda: not cache.why, 5.0)
        assert told == [pong.key]
        told.clear()
        await queue.admit("pong")
        await until("the change", lambda: bool(told), 5.0)
        assert told == [pong.key]


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

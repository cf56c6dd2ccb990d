"""What a server accepts gets an answer, whatever it looks like, and what keeps the operator from a job stands on that job.

Pods that the API server refuses: they are said in its words, and nothing else is touched by it.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Unavailable
from rljob_operator.kube.apiserver.resources import EVENTS, PODS, RLJOBS, Object
from rljob_operator.kube.job.apply import CHUNK

from tests.cluster.control_plane import ControlPlane, connected, meanwhile, until
from tests.cluster.kubelet import Kubelet
from tests.cluster.operator_program import OperatorProgram, operator_program
from tests.cluster.policies import set_quota, webhook_away
from tests.cluster.reconciling import TWO_ACTORS, Clock, OneJob, said_in, status_of, written

EVERYTHING = {
    "annotations": {"notes": "x" * 200_000, **{f"a-{number}": "" for number in range(80)}},
    "labels": {f"l-{number}": "" for number in range(80)},
}


class Cluster:
    """An operator at work, and a kubelet that runs its pods."""

    def __init__(self, namespace: str, viewer: Client, program: OperatorProgram) -> None:
        self.namespace, self.viewer, self.program = namespace, viewer, program
        self.kubelet, self.jobs = Kubelet(viewer, namespace), list[str]()

    async def create(self, **metadata: Any) -> str:
        document = written(self.namespace, "pong", actors={"replicas": 2})
        made = await self.viewer.create(RLJOBS, {**document, "metadata": {"namespace": self.namespace, **metadata}})
        self.jobs.append(made["metadata"]["name"])
        return self.jobs[-1]

    async def until(self, name: str, holds: Callable[[Object], bool], seconds: float) -> float:
        """Wait for what a status is to say; how long that took."""

        async def said() -> bool:
            status = await status_of(self.viewer, self.namespace, name)
            return bool(status) and holds(status)

        return await until(f"what {name} is to say", said, seconds, self.program.log)

    async def until_up(self, name: str, seconds: float = 30.0) -> float:
        return await self.until(name, lambda status: status.get("actors", {}).get("ready") == 2, seconds)

    async def delete_actor(self, name: str) -> str:
        (pod,) = (await self.kubelet.pods(name))["actor-1"]
        await self.viewer.delete(PODS, self.namespace, pod["metadata"]["name"])
        return str(pod["metadata"]["uid"])

    async def until_replaced(self, name: str, gone: str, seconds: float) -> float:
        """Wait until there are two actors again beside the one that was deleted; how long that took."""

        async def two() -> bool:
            return len(await self.actors(name) - {gone}) == 2

        return await until("the next actor", two, seconds, self.program.log)

    async def actors(self, name: str) -> set[str]:
        """The uids of the job's actors."""
        found = await self.kubelet.pods(name)
        return {pod["metadata"]["uid"] for member in found if member.startswith("actor-") for pod in found[member]}


@asynccontextmanager
async def at_a_cluster(cluster: ControlPlane, namespace: str, folder: Path) -> AsyncIterator[Cluster]:
    async with (
        connected(cluster) as viewer,
        operator_program(cluster.kubeconfig, namespace, folder / "log") as program,
    ):
        found = Cluster(namespace, viewer, program)
        async with meanwhile(found.kubelet.play(found.jobs)):
            yield found


async def test_metadata_is_the_servers_business(cluster: ControlPlane, namespace: str, tmp_path: Path) -> None:
    async with at_a_cluster(cluster, namespace, tmp_path) as it:
        generated = await it.create(generateName="sweep-")
        assert generated.startswith("sweep-")
        await it.until_up(await it.create(name="pong", **EVERYTHING))
        await it.until_up(generated)
        await it.viewer.patch(RLJOBS, namespace, generated, {"metadata": EVERYTHING})
        await asyncio.sleep(1.0)
        await it.until_replaced(generated, await it.delete_actor(generated), 10.0)
        await it.until_up(generated)
        assert said_in(await status_of(it.viewer, namespace, generated))["Accepted"][:2] == ("True", "Valid")


async def test_a_spec_that_would_not_fit_into_a_status_is_refused_in_words(pong: OneJob) -> None:
    large, huge = (OneJob(pong.viewer, pong.client, pong.run, name) for name in ("large", "huge"))
    await large.start(actors={"replicas": 1, "env": [{"name": "TEXT", "value": "x" * 450_000}]})
    await large.expect(LearnerReady=("True", "PodsReady"))
    await huge.begin(actors={"replicas": 1, "env": [{"name": "TEXT", "value": "x" * 800_000}]})
    await huge.expect(Accepted=("False", "InvalidSpec"))
    words = "characters; allowed: up to 524,288; put long texts into a ConfigMap"
    assert words in await huge.message("Accepted")


async def test_a_turn_that_fails_is_told_on_its_job(pong: OneJob) -> None:
    await pong.start(actors={"replicas": 1})
    before, run = await pong.status(), pong.run
    answer = run.poll.answer
    run.poll.answer = lambda key: answer(("nobody", key[1 << 40]))  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(IndexError) as failure:
            await pong.turn()
        await run.reconciler.tell(pong.key, failure.value)
    status = await pong.expect(Ready=("False", "TurnFailed"))
    assert (await pong.message("Ready")).endswith("its log says where: IndexError: tuple index out of range")
    assert {**status, "conditions": []} == {**before, "conditions": []}
    await run.events.flush()
    notes = {each["reason"]: each for each in (await pong.viewer.list(EVENTS, pong.namespace)).items}
    assert "IndexError" in notes["TurnFailed"]["note"]
    run.poll.answer = answer  # type: ignore[method-assign]
    await pong.settle()
    assert said_in(await pong.status())["Ready"][1] != "TurnFailed"
    await run.reconciler.tell((pong.namespace, "nobody"), ValueError("of a job that is not known"))


NO_EVENTS = {"name": "no-events", "expression": "!(request.resource.resource in ['events', 'rljobs'])"}


@contextmanager
def no_answer() -> Iterator[str]:
    """A server that takes calls and never answers, as behind a firewall."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"https://127.0.0.1:{server.getsockname()[1]}/"


@contextmanager
def refused() -> Iterator[str]:
    """A port where no server listens."""
    yield "https://127.0.0.1:9/"


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("server", "seconds"), [(refused, 10), (no_answer, 10), (no_answer, 30)])
async def test_a_webhook_that_cannot_be_called_is_named(
    cluster: ControlPlane, namespace: str, tmp_path: Path, server: Callable[[], Any], seconds: int
) -> None:
    def names_it(status: Object) -> bool:
        said = [each["message"] for each in status.get("conditions", ()) if each["type"] == "Ready"]
        return any('failed calling webhook "policy.example.com"' in each for each in said)

    async with at_a_cluster(cluster, namespace, tmp_path) as it:
        await it.until_up(await it.create(name="before"))
        with server() as url:
            away = webhook_away(cluster, namespace, url, ["*"], seconds=seconds, matchConditions=[NO_EVENTS])
            remove = await asyncio.to_thread(away.__enter__)
            new = await it.create(name="new")
            gone = await it.delete_actor("before")
            noticed = await it.until("before", lambda status: status["restarts"]["ignored"] == 1, 60.0)
            named = await it.until(new, names_it, 60.0)
            told = await it.until("before", lambda status: "policy.example.com" in str(status["conditions"]), 60.0)
            await asyncio.sleep(2.0 * seconds)
            await asyncio.to_thread(remove)
        replaced = await it.until_replaced("before", gone, 15.0 + seconds)
        up = await it.until_up(new)
        print(
            f"{server.__name__} {seconds} s: an end noticed after {noticed:.1f} s, the webhook named after {named:.1f} s "
            f"and {told:.1f} s; after its return a pod was replaced within {replaced:.1f} s, the new job up {up:.1f} s later"
        )
        assert max(noticed, named + told) < 60.0
        assert "Traceback" not in it.program.log()


async def test_what_is_refused_by_nobody_ends_a_turn_and_is_not_told(pong: OneJob) -> None:
    await pong.create(actors={"replicas": 1})
    pong.client.loses = ("create", "pods")
    with pytest.raises(Unavailable):
        await pong.turn()
    pong.client.loses = None
    await pong.settle()
    await pong.expect(Ready=("False", "Starting"))


@pytest.mark.usefixtures("clock")
async def test_a_quota_bounds_growth_and_replacements_and_touches_nothing_that_runs(
    cluster: ControlPlane, pong: OneJob
) -> None:
    await pong.start(**TWO_ACTORS)

    async def minutes_later(minutes: int = 1) -> None:
        for _ in range(4 * minutes):
            pong.learns(20.0, 100)
            await pong.settle()
            await pong.start_pods()

    await minutes_later()
    before = {name: pod["metadata"]["uid"] for name, (pod,) in (await pong.pods()).items()}
    set_quota(cluster, pong.namespace, "pods", most=3, used=4)
    await pong.viewer.delete(PODS, pong.namespace, (await pong.pod("actor-1"))["metadata"]["name"])
    await pong.finish_deleted()
    await minutes_later(2)
    exceeded = ("False", "QuotaExceeded")
    await pong.expect(Admitted=exceeded, Ready=("True", "Degraded"), ActorsReady=exceeded)
    assert "exceeded quota: few" in await pong.message("Admitted")
    del before["actor-1"]
    after = {name: pod["metadata"] for name, (pod,) in (await pong.pods()).items()}
    assert {name: each["uid"] for name, each in after.items()} == before
    assert not any("deletionTimestamp" in each for each in after.values())

    set_quota(cluster, pong.namespace, "pods", most=5, used=3)
    await pong.patch(actors={"replicas": 5})
    await minutes_later()
    status = await pong.expect(ScalingLimited=("True", "QuotaLimited"))
    assert (await pong.message("ScalingLimited")).startswith("5 wanted, 3 fit: ")
    numbers = (status["autoscaling"]["desiredReplicas"], status["actors"]["ready"])
    assert numbers == (5, 3), "growth goes as far as the quota"
    set_quota(cluster, pong.namespace, "pods", most=9, used=5)
    await minutes_later()
    assert (await pong.expect(Admitted=("True",)))["actors"]["ready"] == 5

    await pong.patch(actors={"replicas": 60})
    asked = (await pong.calls())["create", "pods"]
    assert asked == CHUNK, "sixty need not be asked for to know that the quota is full"
    assert len(await pong.pods()) == 9


@pytest.fixture
def webhook_back(cluster: ControlPlane, namespace: str) -> Iterator[Callable[[], object]]:
    """Pods of learners are asked of a webhook that can't be called; the function takes it away."""
    learners = {"matchLabels": {"rljob.dev/role": "learner"}}
    with webhook_away(
        cluster, namespace, "https://127.0.0.1:9/", ["pods"], seconds=1, objectSelector=learners
    ) as remove:
        yield remove


async def test_a_webhook_that_fails_for_one_role_keeps_no_other_from_coming_up(
    webhook_back: Callable[[], object], clock: Clock, pong: OneJob
) -> None:
    await pong.create(**TWO_ACTORS)
    for _ in range(3):
        await pong.settle()
        await pong.start_pods()
    await pong.settle()
    status = await pong.status()
    assert "learner" not in await pong.pods()
    assert (status["replay"]["ready"], status["restarts"]) == (1, {"counted": 0, "ignored": 0})
    clock.seconds += 100_000.0
    await pong.settle()
    await pong.expect(Ready=("False",))  # it waits, it never fails
    for kind in ("LearnerReady", "Ready"):
        assert "failed calling webhook" in await pong.message(kind)
    webhook_back()
    clock.seconds += 61.0
    await pong.bring_up()
    assert (await pong.status())["learner"]["ready"]
    await pong.run.events.flush()
    assert (await pong.viewer.list(EVENTS, pong.namespace)).items

"""All edges of the controller's runtime together, around the smallest controller there is: one pod for each job.

The pods' names are random, so that a look at a cache which lags behind would make a second one. What is asked here is that it
never does, nor leaves a job without, whatever becomes of the API server meanwhile.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from rljob_operator.kube.apiserver.access import load_access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, NotFound, Unavailable
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.process.lease import Elector, LeaseTimes
from rljob_operator.kube.render.names import SELECTOR
from rljob_operator.kube.reporting.events import EventRecorder, reference
from rljob_operator.kube.reporting.health import Health
from rljob_operator.kube.reporting.metrics import OperatorMetrics
from rljob_operator.kube.watch.expectations import Expectations, Seen
from rljob_operator.kube.watch.intake import Intake
from rljob_operator.kube.watch.pods import JobKey, Pods, is_gone
from rljob_operator.kube.watch.queue import QueueClosed, WorkQueue

from tests.cluster.control_plane import ControlPlane
from tests.cluster.kube_client import connected, connects, until
from tests.cluster.test_kube_intake import job

WORKERS = 4
LAPSE_SECONDS = 3.0
PATIENT = LeaseTimes(duration_seconds=60.0, renew_deadline_seconds=45.0, retry_seconds=2.0)


class OnePodEach:
    """The controller: what the real one does with these parts, for a job that is one pod."""

    def __init__(self, access: Any, client: Client, metrics: OperatorMetrics, namespace: str) -> None:
        self.client, self.metrics = client, metrics
        self.queue: WorkQueue[JobKey] = WorkQueue()
        self.expected = Expectations(lapse_seconds=LAPSE_SECONDS)
        self.pods = Pods(client, [namespace], self.pod_seen, silence_seconds=5.0)
        self.intake = Intake(access, client, [namespace], lambda space, name: self.queue.add((space, name)))
        self.events = EventRecorder(client, "operator-1", counted=metrics.event)

    def pod_seen(self, key: JobKey, kind: str, pod: Object) -> None:
        self.expected.observe(pod["metadata"]["ownerReferences"][0]["uid"], kind, pod)
        self.queue.add(key)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pods.run())
            group.create_task(self.intake.run(sweep_seconds=3.0))
            group.create_task(self.events.run())
            await self.pods.wait_synced()
            await self.intake.synced.wait()
            for _ in range(WORKERS):
                group.create_task(self.work())

    async def work(self) -> None:
        with suppress(QueueClosed):
            while True:
                key = await self.queue.get()
                began = time.monotonic()
                try:
                    await self.look(key)
                    self.queue.forget(key)
                    self.metrics.reconciled("ok", time.monotonic() - began)
                except ApiError as problem:
                    self.queue.retry(key, problem.retry_after_seconds or 0.0)
                    self.metrics.reconciled("error", time.monotonic() - began)
                finally:
                    self.queue.done(key)

    async def look(self, key: JobKey) -> None:
        namespace, name = key
        wanted = self.intake.get(namespace, name)
        if wanted is None:
            return
        uid = wanted["metadata"]["uid"]
        seen = self.expected.seen(uid)
        if seen is Seen.WAITING:
            self.queue.add_after(key, self.expected.lapses_in_seconds(uid))
            return
        there = [pod for pod in self.pods.of(namespace, uid) if not is_gone(pod)]
        if seen is Seen.LAPSED:
            everything = await self.client.list(PODS, namespace, label_selector=f"{SELECTOR},rljob.dev/job={name}")
            there = [pod for pod in everything.items if pod["metadata"]["ownerReferences"][0]["uid"] == uid]
            self.expected.forget(uid)
        if there:
            return
        pod = pod_of(wanted)
        self.expected.create(uid, pod["metadata"]["name"])
        try:
            await self.client.create(PODS, pod, timeout_seconds=3.0)
        except Unavailable:
            raise  # whether it was created is not known: wait for it to be seen, or to lapse
        except ApiError:
            self.expected.not_created(uid, pod["metadata"]["name"])
            raise
        self.queue.add(key)  # looks again at once, before the pod can be in the cache
        about = reference(RLJOBS, wanted)
        self.events.record(about, "Normal", "Created", "its pod is made", action="Creating")


def pod_of(wanted: Object) -> Object:
    about = wanted["metadata"]
    owner = {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "name": about["name"],
        "uid": about["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{about['name']}-learner-{secrets.token_hex(3)}",
            "namespace": about["namespace"],
            "labels": {"app.kubernetes.io/managed-by": "rljob", "rljob.dev/job": about["name"]},
            "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


@asynccontextmanager
async def controlling(cluster: ControlPlane, namespace: str) -> AsyncIterator[tuple[OnePodEach, OperatorMetrics]]:
    """The controller at work as the leader, with a guard on everything that it writes."""
    metrics = OperatorMetrics()
    access = await load_access(str(cluster.kubeconfig))
    elector = Elector(connects(cluster.kubeconfig), namespace, "operator", "only", PATIENT)
    async with connected(cluster, observe=metrics.called, guard=elector.check) as client:
        controller = OnePodEach(access, client, metrics, namespace)
        health = Health(
            metrics, ready=lambda: controller.pods.synced, watch_age_seconds=lambda: controller.pods.age_seconds
        )
        leading = asyncio.create_task(elector.lead(controller.run))
        looking = asyncio.create_task(health.run())
        try:
            yield controller, metrics
        finally:
            assert not leading.done(), leading.exception()
            assert not looking.done(), looking.exception()
            for task in (leading, looking):
                task.cancel()
            await asyncio.gather(leading, looking, return_exceptions=True)


async def pods_of_jobs(client: Client, namespace: str) -> Counter[str]:
    found = await client.list(PODS, namespace)
    return Counter(pod["metadata"]["labels"]["rljob.dev/job"] for pod in found.items)


def test_each_job_gets_its_pod_and_no_second_one_through_all_that_befalls_the_api_server(
    cluster: ControlPlane, namespace: str
) -> None:
    names: set[str] = set()

    async def make_jobs(client: Client, prefix: str, count: int) -> None:
        for number in range(count):
            while True:
                try:
                    with suppress(NotFound):
                        await client.get(RLJOBS, namespace, f"{prefix}-{number}")
                        break
                    await client.create(RLJOBS, job(namespace, f"{prefix}-{number}"), timeout_seconds=3.0)
                    break
                except ApiError:
                    await asyncio.sleep(0.3)
            names.add(f"{prefix}-{number}")
            await asyncio.sleep(0.05)

    async def story() -> None:
        async with controlling(cluster, namespace) as (controller, metrics), connected(cluster) as client:

            async def settled(seconds: float) -> None:
                began = time.monotonic()
                while True:
                    with suppress(ApiError):
                        there = await pods_of_jobs(client, namespace)
                        assert max(there.values(), default=0) <= 1, f"doubled: {there}"
                        if set(there) == names and not controller.queue.depth:
                            return
                    assert time.monotonic() - began < seconds, f"missing: {names - set(there)}"
                    await asyncio.sleep(0.2)

            await make_jobs(client, "calm", 15)
            await settled(20.0)
            for prefix in ("killed", "again"):
                making = asyncio.create_task(make_jobs(client, prefix, 15))
                await asyncio.sleep(0.4)
                await asyncio.to_thread(cluster.kill_api_server)
                await asyncio.sleep(2.0)
                await asyncio.to_thread(cluster.start_api_server)
                await making
                await settled(40.0)
            making = asyncio.create_task(make_jobs(client, "hung", 15))
            await asyncio.sleep(0.4)
            with cluster.hanging_api_server():
                await asyncio.sleep(7.0)
            await making
            await settled(40.0)
            for pod in controller.pods.of(namespace, controller.intake.get(namespace, "calm-0")["metadata"]["uid"]):  # type: ignore[index]
                await client.delete(PODS, namespace, pod["metadata"]["name"], grace_seconds=0)
            names.discard("calm-1")
            await client.delete(RLJOBS, namespace, "calm-1")
            await until("its end being known", lambda: controller.intake.get(namespace, "calm-1") is None)
            gone = (await client.list(PODS, namespace, label_selector="rljob.dev/job=calm-1")).items
            for pod in gone:
                await client.delete(PODS, namespace, pod["metadata"]["name"], grace_seconds=0)
            await asyncio.sleep(1.0)
            await settled(20.0)
            await until("the events", lambda: not controller.events._waiting, 30.0)
            value = metrics.registry.get_sample_value
            assert value("rljob_operator_events_total", {"outcome": "sent"}) >= 50  # type: ignore[operator]
            assert value("rljob_operator_events_total", {"outcome": "dropped"}) is None
            assert len(controller.pods) == len(names) == len(controller.intake)

    asyncio.run(story())

"""``rljob operator --release``: nothing of an operator keeps a pod after it, and nobody is released under another's hands."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS
from rljob_operator.kube.process import release as releasing
from rljob_operator.kube.process.lease import Elector
from rljob_operator.kube.process.operator import LEASE_NAME, OperatorConfig
from rljob_operator.kube.render import names
from rljob_operator.kube.render.settings import Settings

from tests.cluster.control_plane import ControlPlane
from tests.cluster.kube_client import connects
from tests.cluster.reconciling import Kubelet, Run, bring_up, written
from tests.cluster.test_kube_reconcile import TWO_ACTORS, at_work, condition, status_of

STORAGE = {"checkpoint": {"storage": {"persistentVolumeClaim": {"claimName": "mine"}}}}


def config(cluster: ControlPlane, namespace: str) -> OperatorConfig:
    return OperatorConfig(
        Settings(image="rl:1"), (namespace,), lease_namespace=namespace, kubeconfig=str(cluster.kubeconfig)
    )


async def with_kubelet(kubelet: Kubelet, work: Awaitable[list[releasing.Row]], *jobs: str) -> list[releasing.Row]:
    """The work, with somebody who ends the pods that are asked to go."""

    async def ends() -> None:
        while True:
            for job in jobs:
                await kubelet.finish_deleted(job)
            await asyncio.sleep(0.2)

    ending = asyncio.ensure_future(ends())
    try:
        return await work
    finally:
        ending.cancel()
        with suppress(asyncio.CancelledError):
            await ending


async def kept(viewer: Client, namespace: str) -> list[str]:
    pods = (await viewer.list(PODS, namespace)).items
    return [pod["metadata"]["name"] for pod in pods if names.FINALIZER in pod["metadata"].get("finalizers", ())]


def test_jobs_are_drained_and_nothing_keeps_their_pods(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
            await viewer.create(RLJOBS, written(namespace, "gone", **TWO_ACTORS))
            await viewer.create(RLJOBS, written(namespace, "new", **TWO_ACTORS))
            run = Run(client, namespace)
            for name in ("pong", "gone"):
                await bring_up(run, viewer, kubelet, name)
            (ended,) = (await kubelet.pods("pong"))["actor-1"]
            await kubelet.end(ended, 1)  # nobody has seen that yet
            await viewer.delete(RLJOBS, namespace, "gone")

            told = {row.name: row for row in await releasing.jobs(config(cluster, namespace))}
            assert {name: (row.running, row.kept) for name, row in told.items()} == {
                "pong": (3, 4),
                "gone": (4, 4),
                "new": (0, 0),
            }
            assert "its checkpoints are in its learner's pod" in told["pong"].result
            assert len(await kept(viewer, namespace)) == 8, "nothing is changed by asking"

            work = releasing.release(config(cluster, namespace), 60.0)
            rows = {row.name: row for row in await with_kubelet(kubelet, work, "pong", "gone")}
            assert {name: (row.kept, row.result) for name, row in rows.items()} == {
                "pong": (0, "released; no checkpoint outlives it"),
                "gone": (0, "released"),
                "new": (0, "released; no checkpoint outlives it"),
            }
            assert not await kept(viewer, namespace)
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, "Suspended") == ("True", "OperatorReleased")
            assert status["restarts"] == {"counted": 0, "ignored": 1}, "the end that nobody had seen is counted"
            stored = await viewer.get(RLJOBS, namespace, "pong")
            assert stored["spec"]["suspend"] is False, "nobody's spec is written"

            for pod in (await viewer.list(PODS, namespace)).items:  # as the garbage collector would
                await viewer.delete(PODS, namespace, pod["metadata"]["name"], grace_seconds=0)
            await bring_up(Run(client, namespace), viewer, kubelet, "pong")  # the next operator goes on
            status = await status_of(viewer, namespace, "pong")
            assert (status["actors"]["ready"], condition(status, "Suspended")) == (2, ("False", "Resumed"))

    asyncio.run(story())


def test_pods_of_jobs_that_nobody_defines_any_more_are_let_go(
    cluster: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
            await bring_up(Run(client, namespace), viewer, kubelet, "pong")
            monkeypatch.setattr(releasing, "RLJOBS", replace(RLJOBS, plural="undefined"))
            (row,) = await releasing.release(config(cluster, namespace), 60.0)
            assert (row.state, row.running, row.kept, row.result) == ("Gone", 4, 0, "released")
            assert not await kept(viewer, namespace)

    asyncio.run(story())


def test_a_job_that_does_not_end_in_time_is_named_and_keeps_what_it_has(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS, **STORAGE))
            await bring_up(Run(client, namespace), viewer, kubelet, "pong")
            (row,) = await releasing.release(config(cluster, namespace), 3.0)  # no kubelet ends what is asked to go
            assert (row.state, row.running, row.kept) == ("Starting", 4, 4)
            assert row.result == "NOT released: actors and evaluator are leaving"

    asyncio.run(story())


def test_another_leader_is_named_and_left_to_work(
    cluster: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releasing, "LEAD_SECONDS", 5.0)

    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
            await bring_up(Run(client, namespace), viewer, kubelet, "pong")
            elector = Elector(connects(cluster.kubeconfig), namespace, LEASE_NAME, "the-other-one")
            leads = asyncio.Event()

            async def work() -> None:
                leads.set()
                await asyncio.Event().wait()

            other = asyncio.ensure_future(elector.lead(work))
            await leads.wait()
            try:
                with pytest.raises(releasing.AnotherLeads, match="the-other-one holds the Lease"):
                    await releasing.release(config(cluster, namespace), 60.0)
                assert len(await kept(viewer, namespace)) == 4
                assert elector.leading
            finally:
                other.cancel()
                await asyncio.gather(other, return_exceptions=True)

    asyncio.run(story())


def test_the_command_names_running_jobs_with_a_code_of_its_own(cluster: ControlPlane, namespace: str) -> None:
    def asked(*options: str) -> subprocess.CompletedProcess[str]:
        words = ("operator", "--release", f"--namespace={namespace}", f"--kubeconfig={cluster.kubeconfig}", *options)
        program = "from rljob_operator.cli import main; main()"
        return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60)

    async def story(look: Callable[[], None]) -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
            await bring_up(Run(client, namespace), viewer, kubelet, "pong")
            await asyncio.to_thread(look)

    def look() -> None:
        told = asked("--dry-run")
        assert told.returncode == 3, told
        assert [line.split()[:4] for line in told.stdout.splitlines()] == [
            ["NAMESPACE", "NAME", "STATE", "RUNNING"],
            [namespace, "pong", "Starting", "4"],
        ]

    nothing = asked("--dry-run")
    assert (nothing.returncode, nothing.stdout) == (0, "there are no jobs\n"), nothing
    asyncio.run(story(look))

"""The operator as a process beside an API server that is out of order: it goes on, asks no more than it must, and all is right
afterwards. What becomes of every single call is in `tests/unit/operator/kube/test_client_faults.py`."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import RLJOBS, Object

from tests.cluster.bad_proxy import BadProxy, bad_proxy
from tests.cluster.control_plane import ControlPlane, away, connected, meanwhile
from tests.cluster.kubelet import Kubelet
from tests.cluster.operator_program import OperatorProgram, operator_program
from tests.cluster.reconciling import written

JOBS = 8
MEMBERS = ("replay-0", "learner", "actor-0", "actor-1")
LONG = float(os.environ.get("RLJOB_LONG_FAULTS", "0"))
"""Seconds that each fault lasts; 0 leaves it at what shows it."""
FAULTS: dict[str, Mapping[int | str, float]] = {
    "refusals": {429: 0.1, 500: 0.1, 409: 0.1},
    "lost answers": {"lost": 0.15},
    "cut watches": {"cut": 0.9},
    "everything": {429: 0.05, 500: 0.05, 409: 0.05, 410: 0.02, "lost": 0.05, "cut": 0.5},
}


def runs(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


class Scene:
    """Jobs, whose pods a kubelet starts and ends, and the operator behind a proxy."""

    def __init__(self, namespace: str, viewer: Client, proxy: BadProxy, program: OperatorProgram) -> None:
        self.namespace, self.viewer, self.proxy, self.program = namespace, viewer, proxy, program
        self.kubelet = Kubelet(viewer, namespace)
        self.jobs: list[str] = []
        self.ended: dict[str, int] = {}

    async def create(self, count: int) -> None:
        for _ in range(count):
            name = f"job-{len(self.jobs)}"
            spec = {"backoffLimit": 1000, "actors": {"replicas": 2}}
            await self.viewer.create(RLJOBS, written(self.namespace, name, **spec))
            self.jobs.append(name)

    async def end_a_learner(self) -> None:
        """End the learner of each job that has one that runs."""
        for name in self.jobs:
            for pod in (await self.kubelet.pods(name)).get("learner", ()):
                if runs(pod):
                    await self.kubelet.end(pod, 1)
                    self.ended[name] = self.ended.get(name, 0) + 1

    async def wrong(self) -> str:
        """What is not as it should be, when all has calmed down."""
        for name in self.jobs:
            found = await self.kubelet.pods(name)
            assert not (doubled := [member for member in found if sum(map(runs, found[member])) > 1]), (
                f"{name}: {doubled}"
            )
            pods = {member: len(each) for member, each in found.items()}
            if pods != dict.fromkeys(MEMBERS, 1):
                return f"{name} has {pods}"
            status = (await self.viewer.get(RLJOBS, self.namespace, name)).get("status") or {}
            counted = (status.get("restarts") or {}).get("counted", 0)
            if counted != self.ended.get(name, 0):
                return f"{name}: {counted} ends are counted of {self.ended.get(name, 0)}"
            said: Mapping[str, str] = next((c for c in status.get("conditions", ()) if c["type"] == "LearnerReady"), {})
            if said.get("status") != "True" or (status.get("actors") or {}).get("ready") != 2:
                seen = (await self.kubelet.pods(name)).get("learner", [{}])[0].get("status")
                return f"{name} says {dict(said)}, {status.get('actors')}; its learner's pod: {seen}"
        return ""

    async def settled(self, seconds: float) -> float:
        """Wait until nothing is wrong; how long that took."""
        began = time.monotonic()
        while problem := await self.wrong():
            assert time.monotonic() - began < seconds, f"{problem}\n{self.program.log()[-6000:]}"
            await asyncio.sleep(0.25)
        assert "Traceback" not in self.program.log(), self.program.log()[-6000:]
        return time.monotonic() - began


@asynccontextmanager
async def at_work(cluster: ControlPlane, namespace: str, folder: Path) -> AsyncIterator[Scene]:
    async with (
        connected(cluster) as viewer,
        bad_proxy(cluster, folder) as (proxy, kubeconfig),
        operator_program(kubeconfig, namespace, folder / "log") as program,
    ):
        scene = Scene(namespace, viewer, proxy, program)
        async with meanwhile(scene.kubelet.play(scene.jobs)):
            await scene.create(JOBS)
            await scene.settled(60.0)
            yield scene


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FAULTS)
async def test_calls_that_go_wrong_double_and_lose_nothing(
    cluster: ControlPlane, namespace: str, tmp_path: Path, name: str
) -> None:
    async with at_work(cluster, namespace, tmp_path) as scene:
        scene.proxy.spoil(FAULTS[name])
        asked, began = scene.proxy.asked.total(), time.monotonic()
        while time.monotonic() - began < max(6.0, LONG):
            await scene.end_a_learner()
            await scene.create(1)
            await asyncio.sleep(2.0)
        passed = time.monotonic() - began
        spoilt, asked = scene.proxy.spoilt.total(), scene.proxy.asked.total() - asked
        scene.proxy.spoil({})
        took = await scene.settled(60.0)
        print(f"{name}: {asked} calls in {passed:.0f} s, {dict(scene.proxy.spoilt)} spoilt, right after {took:.1f} s")
        assert spoilt >= 2
        assert asked / passed < 20 * len(scene.jobs)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "what", ["killed", *(pytest.param(each, marks=pytest.mark.long) for each in ("hanging", "etcd"))]
)
async def test_an_api_server_that_is_away_is_waited_for(
    cluster: ControlPlane, namespace: str, tmp_path: Path, what: str
) -> None:
    async with at_work(cluster, namespace, tmp_path) as scene:
        await scene.end_a_learner()
        asked, began = scene.proxy.asked.total(), time.monotonic()
        async with away(cluster, what):
            await asyncio.sleep(max(14.0, LONG))  # longer than a leader tries to renew its Lease
        passed, asked = time.monotonic() - began, scene.proxy.asked.total() - asked
        took = await scene.settled(90.0)
        print(f"{what}: {asked} calls in {passed:.0f} s, right after {took:.1f} s")
        assert asked / passed < 5 * len(scene.jobs)
        assert "stands for the lease again" in scene.program.log()
        assert scene.program.ends == [], "not even the loss of its Lease ends it"

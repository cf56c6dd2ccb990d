"""Leader election against a real API server, with the times that the operator uses unless a test says otherwise.

When an operator says that it is ready: a leader at work, and a standby that could take over. A rollout waits for that.
"""

import asyncio
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import LEASES
from rljob_operator.kube.process import lease
from rljob_operator.kube.process.lease import Elector, LeadershipLost, LeaseTimes

from tests.cluster.control_plane import ControlPlane, away, connects, until
from tests.cluster.reconciling import written
from tests.support.operator_roles import role_objects
from tests.support.ports import free_ports
from tests.support.waiting import eventually

QUICK = LeaseTimes(duration_seconds=3.0, renew_deadline_seconds=1.5, retry_seconds=0.4)
NAME = "operator"


class Candidate:
    """One that works for ever when it leads; knows whether it does, and no two may."""

    at_work: ClassVar[set[str]] = set()

    def __init__(self, cluster: ControlPlane, namespace: str, identity: str, **options: Any) -> None:
        self.elector = Elector(connects(cluster.kubeconfig), namespace, NAME, identity, **options)
        self.identity = identity
        self.stop = asyncio.Event()
        self.task = asyncio.ensure_future(self.elector.lead(self.work))

    async def work(self) -> None:
        assert not self.at_work, f"{self.identity} beside {self.at_work}"
        self.at_work.add(self.identity)
        try:
            await self.stop.wait()
        finally:
            self.at_work.remove(self.identity)

    async def leave(self) -> None:
        """End in the middle of whatever it does."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @property
    def leads(self) -> bool:
        return self.identity in self.at_work


@asynccontextmanager
async def candidates(
    cluster: ControlPlane, namespace: str, *identities: str, **options: Any
) -> AsyncIterator[list[Candidate]]:
    """Candidates, the first of which leads."""
    made: list[Candidate] = []
    for identity in identities:
        made.append(Candidate(cluster, namespace, identity, **options))
        await until("a leader", lambda: made[0].leads, 20)
    try:
        yield made
    finally:
        for candidate in made:
            await candidate.leave()
        assert not Candidate.at_work


async def stored(client: Client, namespace: str) -> dict[str, Any]:
    return dict((await client.get(LEASES, namespace, NAME))["spec"])


async def test_one_leads_and_keeps_the_lease_while_the_other_waits(
    cluster: ControlPlane, viewer: Client, namespace: str
) -> None:
    async with candidates(cluster, namespace, "a", "b", times=QUICK) as (a, b):
        first = await stored(viewer, namespace)
        await asyncio.sleep(2 * QUICK.duration_seconds)
        later = await stored(viewer, namespace)
        assert (a.leads, b.leads, a.elector.leading, b.elector.leading) == (True, False, True, False)
        assert b.elector.holder == later["holderIdentity"] == "a"
        assert later["renewTime"] > first["renewTime"]
        assert later["acquireTime"] == first["acquireTime"]
        assert (later["leaseDurationSeconds"], later["leaseTransitions"]) == (3, 0)


async def test_a_leader_that_is_killed_is_followed_within_20_seconds(
    cluster: ControlPlane, viewer: Client, namespace: str, record_property: Any
) -> None:
    script = str(Path(__file__).with_name("lease_candidate.py"))
    killed = await asyncio.create_subprocess_exec(
        sys.executable, script, str(cluster.kubeconfig), namespace, "a", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert killed.stdout is not None
        assert await asyncio.wait_for(killed.stdout.readline(), 20.0) == b"leads\n"
        b = Candidate(cluster, namespace, "b")
        await asyncio.sleep(3.0)
        assert not b.leads
        killed.kill()
        seconds = await until("the other leading", lambda: b.leads, 20.0)
        record_property("fail_over_seconds", seconds)
        assert seconds > 12.0, "not before the lease had run out"
        assert (await stored(viewer, namespace))["leaseTransitions"] == 1
        await b.leave()
    finally:
        if killed.returncode is None:
            killed.kill()
        await killed.wait()


async def test_a_leader_that_is_stopped_releases_after_its_work_has_ended(
    cluster: ControlPlane, viewer: Client, namespace: str
) -> None:
    order: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.3)
            order.append((await stored(viewer, namespace))["holderIdentity"])

    leading = asyncio.ensure_future(Elector(connects(cluster.kubeconfig), namespace, NAME, "a", QUICK).lead(work))
    await asyncio.sleep(1.0)
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leading
    order.append((await stored(viewer, namespace)).get("holderIdentity", ""))
    assert order == ["a", ""]


async def test_work_that_fails_gives_the_lease_up_and_is_heard_of(
    cluster: ControlPlane, viewer: Client, namespace: str
) -> None:
    async def work() -> None:
        raise RuntimeError("a defect")

    elector = Elector(connects(cluster.kubeconfig), namespace, NAME, "a", QUICK)
    with pytest.raises(RuntimeError, match="a defect"):
        await asyncio.wait_for(elector.lead(work), 5.0)
    assert (await stored(viewer, namespace)).get("holderIdentity", "") == ""


@pytest.mark.parametrize("fault", ["killed", "hanging"])
async def test_a_leader_cut_off_for_12_seconds_ends_before_its_lease_does(
    cluster: ControlPlane, namespace: str, fault: str
) -> None:
    async with candidates(cluster, namespace, "a", "b") as (a, b):
        began = time.monotonic()
        async with away(cluster, fault):
            await until("its end", a.task.done, 12.0)
            took = time.monotonic() - began
            await asyncio.sleep(max(0.0, 12.0 - took))
        assert 7.0 < took < 12.0, "at the renewal's deadline, which counts from the last renewal"
        assert isinstance(a.task.exception(), LeadershipLost)
        assert not a.leads
        await until("the other leading", lambda: b.leads, 20.0)


@pytest.mark.parametrize("fault", ["loop", "server"])
async def test_a_leader_goes_on_through_a_busy_loop_and_an_api_server_that_is_away_for_a_moment(
    cluster: ControlPlane, viewer: Client, namespace: str, fault: str
) -> None:
    async with candidates(cluster, namespace, "a") as (a,):
        first = await stored(viewer, namespace)
        if fault == "loop":
            time.sleep(12.0)  # as a turn that computes without a pause
        else:
            with cluster.hanging():
                await asyncio.sleep(6.0)
            await asyncio.sleep(1.0)
        a.elector.check()
        assert (await stored(viewer, namespace))["renewTime"] > first["renewTime"]
        await asyncio.sleep(4.0)
        assert a.leads
        assert a.elector.leading


async def test_a_leader_whose_lease_somebody_took_stops_at_once(
    cluster: ControlPlane, viewer: Client, namespace: str
) -> None:
    async with candidates(cluster, namespace, "a") as (a,):
        await viewer.patch(LEASES, namespace, NAME, {"spec": {"holderIdentity": "thief"}})
        await until("its end", a.task.done, 8.0)
        with pytest.raises(LeadershipLost, match="held by thief"):
            a.task.result()
        assert (await stored(viewer, namespace))["holderIdentity"] == "thief", "it is not released"


async def test_somebody_who_only_touches_the_lease_does_no_harm(
    cluster: ControlPlane, viewer: Client, namespace: str
) -> None:
    async with candidates(cluster, namespace, "a", times=QUICK) as (a,):
        for number in range(8):
            await viewer.patch(LEASES, namespace, NAME, {"metadata": {"labels": {"touched": str(number)}}})
            await asyncio.sleep(0.5)
        assert a.leads


@pytest.mark.parametrize("year", [2001, 2099])
async def test_what_the_clocks_of_the_machines_say_does_not_matter(
    cluster: ControlPlane, viewer: Client, namespace: str, monkeypatch: pytest.MonkeyPatch, year: int
) -> None:
    """A leader decades behind or ahead is neither overthrown while it renews nor waited for when it does not."""
    behind = time.monotonic() - 5000.0

    def stamp() -> str:
        return f"{year}-01-01T00:00:00.{int(time.monotonic() * 1000) % 1_000_000:06d}Z"

    monkeypatch.setattr(lease, "_now", stamp)
    async with candidates(cluster, namespace, "a", times=QUICK) as (a,):
        b = Candidate(cluster, namespace, "b", times=QUICK, steady=lambda: time.monotonic() - behind)
        await asyncio.sleep(2 * QUICK.duration_seconds)
        assert (a.leads, b.leads) == (True, False)
        await viewer.patch(LEASES, namespace, NAME, {"spec": {"holderIdentity": "dead", "renewTime": stamp()}})
        assert await until("a leader after the dead one", lambda: b.leads, 8.0) > 2.5
        await b.leave()


async def test_many_who_start_together_make_one_leader(cluster: ControlPlane, namespace: str) -> None:
    made = [Candidate(cluster, namespace, f"c-{number}") for number in range(5)]
    await until("a leader", lambda: bool(Candidate.at_work))
    for _ in range(3):
        leader = next(candidate for candidate in made if candidate.leads)
        leader.stop.set()
        await leader.task
        made.remove(leader)
        await until("the next", lambda: bool(Candidate.at_work), 3.0)
    for candidate in made:
        await candidate.leave()


class Replica:
    """``rljob operator`` for the jobs of one namespace, with its pages on a port of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log_file: Path, port: int) -> None:
        self.process, self._log_file, self.port = process, log_file, port

    def log(self) -> str:
        return self._log_file.read_text()

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, ""
        except OSError:
            return 0, ""  # it does not listen yet

    def until_ready(self, code: int, seconds: float = 60.0) -> None:
        eventually(lambda: self.page("/readyz")[0] == code, self.log, seconds)


@contextmanager
def replica(kubeconfig: Path, namespace: str, log_file: Path, *options: str) -> Iterator[Replica]:
    (port,) = free_ports(1)
    command = [
        sys.executable, "-m", "rljob_operator", "operator", f"--namespace={namespace}", f"--lease-namespace={namespace}",
        f"--kubeconfig={kubeconfig}", "--image=rl:1", "--plain-logs", f"--port={port}", *options,
    ]  # fmt: skip
    with log_file.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield Replica(process, log_file, port)
    finally:
        process.terminate()
        process.wait(30)


def grant(cluster: ControlPlane, namespace: str, objects: list[dict[str, Any]]) -> None:
    for each in objects:
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{each['kind'].lower()}s"
        cluster.create(path, each)


def test_a_standby_is_ready_once_it_could_take_over_and_a_leader_once_it_works(
    cluster: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    own = cluster.kubeconfig_for(tmp_path, {"token": cluster.token(namespace, "next")})
    lease_client, of_jobs = [], []
    for each in role_objects("next", namespace, [namespace]):
        (lease_client if each["metadata"]["name"] == "next-leader" else of_jobs).append(each)
    grant(cluster, namespace, lease_client)
    with (
        replica(cluster.kubeconfig, namespace, tmp_path / "old.log") as old,
        replica(own, namespace, tmp_path / "new.log") as new,
    ):
        old.until_ready(200)
        eventually(lambda: "no candidate for the lease: rljobs.rljob.dev is forbidden" in new.log(), new.log)
        assert (new.page("/healthz")[0], new.page("/readyz")[0]) == (200, 503), "it lives, and a rollout waits"
        grant(cluster, namespace, of_jobs)
        new.until_ready(200)
        assert "stands by: " in eventually(lambda: "stands by: " in new.log() and new.log(), new.log)
        assert "\nrljob_operator_leader 0.0" in new.page("/metrics")[1]
        assert "\nrljob_operator_leader 1.0" in old.page("/metrics")[1]
        old.process.terminate()
        eventually(lambda: " leads" in new.log(), new.log, 10.0)
        new.until_ready(200)
        with cluster.hanging():
            new.until_ready(503, 20.0)


def test_one_namespace_that_may_not_be_read_stops_no_other(
    cluster: ControlPlane, namespace: str, other_namespace: str, tmp_path: Path
) -> None:
    """As where it, or the RoleBinding in it, was deleted."""
    own = cluster.kubeconfig_for(tmp_path, {"token": cluster.token(namespace, "operator")})
    grant(cluster, namespace, role_objects("operator", namespace, [namespace]))
    with replica(own, namespace, tmp_path / "log", f"--namespace={other_namespace}") as it:
        it.until_ready(200)
        cluster.create(f"/apis/rljob.dev/v1alpha1/namespaces/{namespace}/rljobs", written(namespace, "pong"))
        path = f"/apis/rljob.dev/v1alpha1/namespaces/{namespace}/rljobs/pong"
        eventually(lambda: cluster.request("GET", path)[1].get("status"), it.log)
        readable = it.page("/metrics")[1]
        assert f'rljob_operator_namespace_readable{{namespace="{namespace}"}} 1.0' in readable
        assert f'rljob_operator_namespace_readable{{namespace="{other_namespace}"}} 0.0' in readable
        assert f"RLJobs in {other_namespace} can't be listed: rljobs.rljob.dev is forbidden" in it.log()
        assert (it.page("/healthz")[0], it.page("/readyz")[0]) == (200, 200)

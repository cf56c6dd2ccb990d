"""The operator as a process: its leader election, its pages of health, and how it goes on after a turn that brought nothing."""

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from rljob.telemetry.server import TelemetryServer
from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Conflict, Forbidden, NotLeader, TooManyRequests, Unavailable
from rljob_operator.kube.process.lease import Elector, LeaseTimes, new_identity
from rljob_operator.kube.process.operator import SOON_SECONDS, UNAVAILABLE_SECONDS, Operator, OperatorConfig
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.reporting.health import LOOP_LAG_SECONDS, Health
from rljob_operator.kube.reporting.metrics import OperatorMetrics
from rljob_operator.kube.watch.queue import LONGEST_DELAY_SECONDS, WorkQueue

from tests.cluster.control_plane import connects, meanwhile
from tests.support.ports import free_ports
from tests.unit.operator.kube.fake_api_server import Answer, refuses, says, served

OURS = {
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"},
    "spec": {"holderIdentity": "me"},
}
QUICK = 1.0


class Failing:
    """Takes turns that end with ``problem``, at each of the times that the queue gives them."""

    def __init__(self, problem: Exception, queue: WorkQueue[Any], clock: list[float], turns: int) -> None:
        self._problem, self._queue, self._clock, self._left = problem, queue, clock, turns
        self.times: list[float] = []
        self.told: list[float] = []

    async def tell(self, key: tuple[str, str], problem: Exception) -> None:
        assert problem is self._problem
        self.told.append(self._clock[0])

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        self.times.append(self._clock[0])
        self._left -= 1
        if not self._left:
            self._queue.close()
        raise self._problem


async def failing(problem: Exception, turns: int) -> tuple[list[float], list[float]]:
    """Seconds between the looks at a job each of whose turns ends with ``problem``, and when that was told on the job."""
    access = Access(Configuration(host="http://127.0.0.1:1"), "team", None, None)
    client = Client(access)
    operator = Operator(OperatorConfig(Settings(image="rl:1")), access, OperatorMetrics(), client)
    clock = [0.0]
    asyncio.get_running_loop().time = lambda: clock[0]  # type: ignore[method-assign]
    queue: WorkQueue[Any] = WorkQueue(lambda: clock[0], lambda: 0.0)
    operator._queue = queue
    failing = Failing(problem, queue, clock, turns)
    operator._reconciler = failing  # type: ignore[assignment]
    queue.add(("team", "job"))
    working = asyncio.ensure_future(operator._work(operator._queue, operator._reconciler))
    while not working.done():
        await asyncio.sleep(0)
        if queue.delayed and not queue._processing:
            clock[0] = min(timer.when() for timer in queue._later.values())
            await asyncio.sleep(0)
    await client.close()
    return [after - before for before, after in pairwise(failing.times)], failing.told


@pytest.mark.parametrize(
    ("problem", "turns", "last"),
    [
        (Unavailable("refused"), 8, [0.5, 1.0, 2.0, 4.0, *[UNAVAILABLE_SECONDS] * 3]),
        (Unavailable("busy", retry_after_seconds=20.0), 3, [20.0, 20.0]),
        (ApiError("no"), 10, [LONGEST_DELAY_SECONDS]),
        (Conflict("changed"), 2, [SOON_SECONDS]),
        (Conflict("changed"), 5, [SOON_SECONDS] * 4),
    ],
    ids=["away", "it says how long to wait", "refused", "changed by another", "changed again and again"],
)
async def test_how_long_the_next_look_waits_follows_from_the_problem(
    problem: Exception, turns: int, last: list[float]
) -> None:
    assert (await failing(problem, turns))[0][-len(last) :] == last


@pytest.mark.parametrize(
    "problem", [Forbidden("no", code=403), Unavailable("webhook", code=500), ValueError("a defect")]
)
async def test_what_is_refused_is_told_on_the_job_from_the_second_time_on(problem: Exception) -> None:
    waited, told = await failing(problem, 4)
    assert (waited[:2], told) == ([0.5, 1.0], [0.5, 1.5, 3.5])


@pytest.mark.parametrize(
    "problem", [Unavailable("away"), Conflict("changed", code=409), TooManyRequests("busy", code=429)]
)
async def test_what_says_nothing_of_the_job_is_not_told_on_it(problem: Exception) -> None:
    assert (await failing(problem, 4))[1] == []


class Turns:
    """Reconciles in no time, and notes when."""

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock
        self.times: list[float] = []

    async def reconcile(self, key: tuple[str, str]) -> None:
        self.times.append(self._clock[0])


async def test_pods_that_come_up_within_a_second_are_seen_by_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that ends by a turn soon after."""
    clock, key = [0.0], ("team", "job")
    monkeypatch.setattr("rljob_operator.kube.process.operator.time", SimpleNamespace(monotonic=lambda: clock[0]))
    asyncio.get_running_loop().time = lambda: clock[0]  # type: ignore[method-assign]
    access = Access(Configuration(host="http://127.0.0.1:1"), "team", None, None)
    client = Client(access)
    operator, turns = Operator(OperatorConfig(Settings(image="rl:1")), access, OperatorMetrics(), client), Turns(clock)
    operator._queue, operator._reconciler = WorkQueue(lambda: clock[0]), turns  # type: ignore[assignment]
    operator._intake.change("ADDED", {"metadata": {"namespace": "team", "name": "job", "uid": "u"}, "spec": {}})
    working = asyncio.ensure_future(operator._work(operator._queue, operator._reconciler))
    owner = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "name": "job", "uid": "u", "controller": True}
    pod = {"metadata": {"name": "job-learner-x", "uid": "p", "ownerReferences": [owner]}}
    for step in range(200):
        clock[0] = step / 50
        if step in (1, 2, 3, 4):
            operator._pod_seen(key, "ADDED", pod)
        if step in (5, 8, 20, 21, 40):
            operator._pod_seen(key, "MODIFIED", {**pod, "status": {"phase": "Pending" if step < 20 else "Running"}})
        if step == 130:
            operator._pod_seen(key, "MODIFIED", {**pod, "status": {"phase": "Failed"}})
        for _ in range(4):
            await asyncio.sleep(0)
    operator._queue.close()
    await working
    await client.close()
    assert turns.times == [pytest.approx(0.0), pytest.approx(1.0, abs=0.05), pytest.approx(2.6, abs=0.05)]


async def leading(work: Callable[[Elector], Awaitable[None]], *answers: Answer, **options: Any) -> Elector:
    """Let one lead, with these answers to the first look at the Lease, its creation and what follows; it, when that is over."""
    async with served(refuses(404, "NotFound"), says(201, OURS), *answers) as (server, _):
        elector = Elector(connects(server.url), "n", "a", "me", **options)
        with pytest.raises(NotLeader):
            elector.check()
        await elector.lead(lambda: work(elector))
        return elector


async def test_a_process_that_stood_still_may_write_nothing_when_it_wakes() -> None:
    """Before anything has had a turn to find out: the guard asks the clock."""
    seconds = 100.0

    async def work(elector: Elector) -> None:
        nonlocal seconds
        seconds += 9.9
        elector.check()
        seconds += 0.1
        with pytest.raises(NotLeader, match="me does not hold the lease n/a"):
            elector.check()

    assert not (await leading(work, steady=lambda: seconds)).leading


async def test_one_answer_that_takes_most_of_the_time_loses_no_lease() -> None:
    """A fifth of a lease's usual times: an answer of 8 seconds."""

    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(8.0 / 5)
        return web.json_response(OURS)

    async def work(elector: Elector) -> None:
        ends = time.monotonic() + 13.0 / 5
        while time.monotonic() < ends:
            elector.check()
            await asyncio.sleep(0.1)

    await leading(work, slow, says(200, OURS), times=LeaseTimes(15.0 / 5, 10.0 / 5, 2.0 / 5))


def test_no_two_processes_have_the_same_identity() -> None:
    assert len({new_identity() for _ in range(100)}) == 100


def page(health: Health, path: str) -> tuple[int, str]:
    assert health.server is not None
    try:
        with urllib.request.urlopen(f"{health.server.url}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class World:
    ready = False
    looks = 0

    def look(self) -> None:
        self.looks += 1


@asynccontextmanager
async def running(lag_seconds: float = LOOP_LAG_SECONDS) -> AsyncIterator[tuple[Health, World]]:
    world = World()
    health = Health(
        OperatorMetrics(),
        ready=lambda: world.ready,
        look=world.look,
        host="127.0.0.1",
        port=free_ports(1)[0],
        lag_seconds=lag_seconds,
    )
    async with meanwhile(health.run()):
        await asyncio.sleep(0.05)
        yield health, world


async def asked(health: Health, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(page, health, path)


async def until(health: Health, path: str, code: int) -> None:
    """Ask until the answer is that one."""
    async with asyncio.timeout(20.0):
        while (await asked(health, path))[0] != code:
            await asyncio.sleep(0.05)


async def test_a_loop_that_stands_still_is_told_of_meanwhile() -> None:
    async with running(QUICK) as (health, *_):
        task = asyncio.ensure_future(asyncio.to_thread(lambda: (time.sleep(3.0), page(health, "/healthz"))[1]))
        await asyncio.sleep(0.05)
        time.sleep(3.5)  # the fault of this test
        assert (await task)[0] == 503
        await asyncio.sleep(0.1)
        assert (await asked(health, "/healthz"))[0] == 200
        _, text = await asked(health, "/metrics")
        (lag,) = [line for line in text.splitlines() if line.startswith("rljob_operator_loop_lag_seconds ")]
        assert float(lag.split()[1]) > 0.5


async def test_it_is_ready_once_its_operator_is() -> None:
    async with running() as (health, world):
        assert (await asked(health, "/readyz"))[0] == 503
        world.ready = True
        await until(health, "/readyz", 200)
        assert world.looks >= 2


def test_port_0_serves_nothing() -> None:
    health = Health(OperatorMetrics(), ready=lambda: True)
    assert health.server is None
    health.tick(0.0)


def test_a_port_that_is_taken_is_named() -> None:
    taken = TelemetryServer("other", 0, dict, lambda: True)
    with taken, pytest.raises(OSError, match=f"127.0.0.1:{taken.port}"):
        Health(OperatorMetrics(), ready=lambda: True, host="127.0.0.1", port=taken.port)


def test_the_figures_are_those_of_one_operator() -> None:
    one, other = OperatorMetrics(), OperatorMetrics()
    one.reconciled("ok", 0.01)
    one.reconciled("conflict", 0.01)
    one.called("create", "pods", "201", 0.02)
    one.called("watch", "pods", "200", 240.0)
    one.event("sent")
    one.leader.set(1)
    value, of_watches = one.registry.get_sample_value, {"verb": "watch", "resource": "pods", "code": "200"}
    assert value("rljob_operator_reconciles_total", {"result": "ok"}) == 1
    assert value("rljob_operator_reconcile_seconds_count") == 2
    assert value("rljob_operator_api_calls_total", of_watches) == 1
    assert value("rljob_operator_api_call_seconds_count", {"verb": "create"}) == 1
    assert value("rljob_operator_api_call_seconds_count", {"verb": "watch"}) is None, (
        "how long it was open says nothing"
    )
    assert value("rljob_operator_events_total", {"outcome": "sent"}) == value("rljob_operator_leader") == 1
    assert value("process_resident_memory_bytes") > 0  # type: ignore[operator]
    assert other.registry.get_sample_value("rljob_operator_leader") == 0

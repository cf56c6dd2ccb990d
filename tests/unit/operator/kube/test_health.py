"""The operator's pages: alive while its loop turns and the API server is heard, ready once it says so."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from rljob.telemetry.server import TelemetryServer
from rljob_operator.kube.reporting.health import Health, HealthLimits
from rljob_operator.kube.reporting.metrics import OperatorMetrics

from tests.support.ports import free_ports

QUICK = HealthLimits(loop_lag_seconds=1.0, watch_age_seconds=120.0)


def page(health: Health, path: str) -> tuple[int, str]:
    assert health.server is not None
    try:
        with urllib.request.urlopen(f"{health.server.url}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class World:
    age: float | None = 1.0
    ready = False
    looks = 0

    def look(self) -> None:
        self.looks += 1


@asynccontextmanager
async def running(limits: HealthLimits | None = None) -> AsyncIterator[tuple[Health, World]]:
    world = World()
    health = Health(
        OperatorMetrics(),
        ready=lambda: world.ready,
        watch_age_seconds=lambda: world.age,
        look=world.look,
        host="127.0.0.1",
        port=free_ports(1)[0],
        limits=limits,
    )
    task = asyncio.create_task(health.run())
    await asyncio.sleep(0.05)
    try:
        yield health, world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def asked(health: Health, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(page, health, path)


async def until(health: Health, path: str, code: int) -> None:
    """Ask until the answer is that one."""
    async with asyncio.timeout(20.0):
        while (await asked(health, path))[0] != code:
            await asyncio.sleep(0.05)


async def test_it_is_alive_while_its_loop_turns_and_the_api_server_is_heard() -> None:
    async with running(QUICK) as (health, world):
        await asyncio.sleep(1.5)
        assert (await asked(health, "/healthz"))[0] == 200
        world.age = 120.0
        await until(health, "/healthz", 503)
        assert "not heard for 120 s" in (await asked(health, "/status"))[1]
        world.age = 3.0
        await until(health, "/healthz", 200)
        world.age = None
        await asyncio.sleep(1.1)
        assert (await asked(health, "/healthz"))[0] == 200, "one that waits for the lease watches nothing"


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
    health = Health(OperatorMetrics(), ready=lambda: True, watch_age_seconds=lambda: 0.0)
    assert health.server is None
    health.tick(0.0)


def test_a_port_that_is_taken_is_named() -> None:
    taken = TelemetryServer("other", 0, dict, lambda: True)
    with taken, pytest.raises(OSError, match=f"127.0.0.1:{taken.port}"):
        Health(OperatorMetrics(), ready=lambda: True, watch_age_seconds=lambda: 0.0, host="127.0.0.1", port=taken.port)


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

"""How the operator goes on after a turn that brought nothing."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from kubernetes.aio.client.configuration import Configuration
from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Conflict, Forbidden, TooManyRequests, Unavailable
from rljob_operator.kube.process.operator import SOON_SECONDS, UNAVAILABLE_SECONDS, Operator, OperatorConfig
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.reporting.metrics import OperatorMetrics
from rljob_operator.kube.watch.queue import LONGEST_DELAY_SECONDS, WorkQueue

KEY = ("team", "job")


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
    queue: WorkQueue[Any] = WorkQueue(lambda: clock[0], lambda: 0.0)
    operator._queue = queue
    failing = Failing(problem, queue, clock, turns)
    operator._reconciler = failing  # type: ignore[assignment]
    queue.add(KEY)
    working = asyncio.ensure_future(operator._work())
    while not working.done():
        await asyncio.sleep(0)
        if queue.delayed and not queue._processing:
            clock[0] = min(queue._later.values())
            queue._due()
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

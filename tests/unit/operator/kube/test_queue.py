"""The work queue: once each, never twice at a time, in turn, later, and later still after failures."""

import asyncio
import random
import time
from collections import Counter

import pytest
from rljob_operator.kube.watch.queue import LONGEST_DELAY_SECONDS, QueueClosed, WorkQueue

from tests.support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    """It only moves when it is moved."""
    return Clock(1000.0)


@pytest.fixture
def queue(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock, jitter=lambda: 0.0)


async def take(queue: WorkQueue[str]) -> str | None:
    """The next key, if any is ready."""
    asyncio.get_running_loop().time = queue._now  # type: ignore[method-assign]
    for _ in range(2):  # timers that are due, and what they call
        await asyncio.sleep(0)
    if not queue.depth:
        return None
    getting = queue.get()
    with pytest.raises(StopIteration) as taken:
        getting.send(None)
    return str(taken.value.value)


async def test_a_key_is_queued_once_however_often_it_is_added(queue: WorkQueue[str]) -> None:
    for _ in range(3):
        queue.add("a")
    assert [await take(queue), await take(queue)] == ["a", None]


async def test_a_busy_key_queues_up_behind_the_others(queue: WorkQueue[str]) -> None:
    for key in ("busy", "a", "b"):
        queue.add(key)
    order = []
    for _ in range(6):
        key = await take(queue)
        assert key is not None
        order.append(key)
        if key == "busy":
            queue.add(key)  # it is never finished
        queue.done(key)
    assert order == ["busy", "a", "b", "busy", "busy", "busy"]


@pytest.mark.parametrize(("crowds_seconds", "waits_for"), [(0.1, 2), (2.0, 1)])
async def test_a_tenants_first_key_does_not_wait_for_all_of_anothers(
    clock: Clock, crowds_seconds: float, waits_for: int
) -> None:
    queue: WorkQueue[str] = WorkQueue(clock, tenant=lambda key: key[0])
    for number in range(300):
        queue.add(f"a{number}")
    order = []
    for turn in range(40):
        if turn >= 10 and turn % 10 == 0:
            queue.add(f"b{turn}")
        key = await take(queue)
        assert key is not None
        clock.now += crowds_seconds if key[0] == "a" else 0.1
        queue.done(key)
        order.append(key)
    waited = [order.index(f"b{turn}") - turn for turn in (10, 20, 30)]
    assert max(waited) <= waits_for
    assert [key for key in order if key[0] == "a"] == [f"a{number}" for number in range(37)], "its own come in order"


async def test_a_later_key_comes_when_it_is_due_and_not_before(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after("a", 10.0)
    queue.add_after("b", 5.0)
    queue.add_after("a", 20.0)  # it is due earlier anyway
    assert (queue.depth, queue.delayed) == (0, 2)
    clock.now += 5.0
    assert (await take(queue), await take(queue)) == ("b", None)
    queue.add_after("c", 100.0)
    queue.add_after("c", 1.0)
    clock.now += 1.0
    assert (await take(queue), await take(queue)) == ("c", None)
    clock.now += 4.0
    assert (await take(queue), await take(queue)) == ("a", None)
    clock.now += 1000.0
    assert (await take(queue), queue.delayed) == (None, 0)


async def test_what_is_wanted_now_is_not_wanted_again_later(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after("a", 10.0)
    queue.add("a")
    assert (await take(queue), queue.delayed) == ("a", 0)
    queue.done("a")
    clock.now += 10.0
    assert await take(queue) is None
    queue.add("b")
    queue.add_after("b", 10.0)
    assert queue.delayed == 0
    queue.add_after("c", 0.0)
    queue.add_after("d", -1.0)
    assert [await take(queue) for _ in range(4)] == ["b", "c", "d", None]


async def test_each_failure_waits_twice_as_long_up_to_a_minute(queue: WorkQueue[str], clock: Clock) -> None:
    delays = []
    for _ in range(10):
        delays.append(queue.retry("a"))
        clock.now += delays[-1]
        assert await take(queue) == "a"
        queue.done("a")
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert queue.retry("b") == 0.5, "each key for itself"
    assert queue.failing == 2
    queue.forget("a")
    assert (queue.retry("a"), queue.retry("a", at_least_seconds=30.0)) == (0.5, 30.0)


async def test_keys_that_fail_together_come_back_apart() -> None:
    queue: WorkQueue[int] = WorkQueue(Clock(1000.0), random.Random(3).random)
    first = [queue.retry(key) for key in range(100)]
    assert 0.5 <= min(first) < 0.51
    assert 0.59 < max(first) < 0.6
    for _ in range(20):
        last = [queue.retry(key) for key in range(100)]
    assert max(last) == LONGEST_DELAY_SECONDS


async def test_a_key_that_failed_thousands_of_times_is_still_no_trouble(queue: WorkQueue[str]) -> None:
    for _ in range(5000):
        assert queue.retry("a") <= 60.0
    assert queue.delayed == 1


async def test_the_age_is_that_of_the_key_which_waits_longest(queue: WorkQueue[str], clock: Clock) -> None:
    assert queue.age_seconds == 0.0
    queue.add("a")
    clock.now += 2.0
    queue.add("b")
    clock.now += 1.0
    assert (queue.age_seconds, queue.depth) == (3.0, 2)
    await take(queue)
    assert queue.age_seconds == 1.0
    queue.add("a")  # waits from now on, though its worker is not done
    clock.now += 5.0
    await take(queue)
    queue.done("a")
    assert queue.age_seconds == 5.0


async def test_workers_that_wait_are_woken_for_what_is_added_and_for_what_becomes_due() -> None:
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    began = time.monotonic()
    queue.add_after("later", 0.1)
    queue.add_after("even later", 0.2)
    queue.add("now")
    await asyncio.wait_for(asyncio.gather(*workers), 5.0)
    assert sorted(worker.result() for worker in workers) == ["even later", "later", "now"]
    assert 0.19 < time.monotonic() - began < 1.0


async def test_a_worker_that_is_cancelled_in_its_turn_passes_it_on() -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 1.0) == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_closed_queue_sends_its_workers_home() -> None:
    queue: WorkQueue[str] = WorkQueue()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_after("later", 3600.0)
    queue.close()
    with pytest.raises(QueueClosed):
        await worker
    queue.add("a")
    with pytest.raises(QueueClosed):
        await queue.get()


async def test_many_workers_and_sources_never_share_a_key_nor_lose_one() -> None:
    """Whatever is added is looked at after it was added, by one worker at a time."""
    queue: WorkQueue[int] = WorkQueue()
    held: set[int] = set()
    wanted: Counter[int] = Counter()
    handled: Counter[int] = Counter()
    draw = random.Random(11)

    async def work() -> None:
        while True:
            try:
                key = await queue.get()
            except QueueClosed:
                return
            assert key not in held
            held.add(key)
            at = wanted[key]
            await asyncio.sleep(draw.random() * 0.002)
            handled[key] = at
            held.remove(key)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(8)]
    for _ in range(3000):
        key = draw.randrange(20)
        wanted[key] += 1
        queue.add(key) if draw.random() < 0.7 else queue.add_after(key, draw.random() * 0.01)
        if draw.random() < 0.1:
            await asyncio.sleep(0.001)
    for _ in range(500):
        if handled == wanted:
            break
        await asyncio.sleep(0.01)
    assert handled == wanted
    queue.close()
    await asyncio.gather(*workers)

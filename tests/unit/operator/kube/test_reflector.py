"""How the copy of the pods is kept in step through faults that a real API server can't be made to produce on demand.

The server is `fake_api_server`; the same with a real one is in `tests/cluster/test_kube_pods.py`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from rljob_operator.kube.apiserver import reflector
from rljob_operator.kube.apiserver.client import SILENCE_SECONDS, TIMEOUT_SECONDS, WATCH_SECONDS
from rljob_operator.kube.apiserver.errors import Forbidden
from rljob_operator.kube.watch.pods import Pods

from tests.unit.operator.kube.fake_api_server import Answer, FakeApiServer, listed, never, refuses, served, streams
from tests.unit.operator.kube.sample_pods import running_pod

QUICK_SECONDS = 0.05


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "FIRST_DELAY_SECONDS", QUICK_SECONDS)


def pod(number: int, version: str = "7") -> dict[str, Any]:
    return running_pod(number, resourceVersion=version)


def event(kind: str, number: int, version: str) -> dict[str, Any]:
    return {"type": kind, "object": pod(number, version)}


def bookmark(version: str) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": version}}}


async def followed(
    *answers: Answer, until: Callable[[FakeApiServer, Pods], bool], seconds: float = 5.0, **options: Any
) -> tuple[list[str], list[str], Pods]:
    """What is told, and what was asked for, until it is so. The last answer is given for ever."""
    told: list[str] = []
    async with served(*answers, timeout_seconds=0.5) as (server, client):
        pods = Pods(client, None, lambda key, kind, pod: told.append(f"{kind} {pod['spec']['hostname']}"), **options)
        running = asyncio.create_task(pods.run())
        began = time.monotonic()
        while not until(server, pods):
            assert not running.done(), running.exception()
            assert time.monotonic() - began < seconds, [str(request.rel_url) for request in server.asked]
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    watched = [request.query.get("resourceVersion") if "watch" in request.query else None for request in server.asked]
    return told, ["list" if version is None else f"watch from {version}" for version in watched], pods


def asked_times(count: int) -> Callable[[FakeApiServer, Pods], bool]:
    return lambda server, pods: len(server.asked) >= count


FORBIDDEN = refuses(403, "Forbidden", "pods is forbidden")


async def test_what_may_not_be_read_keeps_nothing_waiting_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    _, asked, pods = await followed(FORBIDDEN, until=asked_times(3))
    assert (pods.synced, asked, caplog.text.count("pods is forbidden")) == (True, ["list"] * 3, 1)
    with pytest.raises(Forbidden, match="pods is forbidden"):
        pods.check("team")
    _, _, pods = await followed(FORBIDDEN, listed("5"), streams(hang=True), until=asked_times(3))
    pods.check("team")


async def test_a_namespace_that_may_not_be_read_is_no_silence() -> None:
    clock = [0.0]
    async with served(listed("5"), timeout_seconds=0.5) as (_, client):
        pods, seconds = Pods(client, ("gone", "team"), lambda *_: None, steady=lambda: clock[0]), 200.0
        clock[0] = seconds
        pods._reflectors[1]._heard = seconds - 10.0
        assert pods.age_seconds == seconds
        pods._reflectors[0].refused = Forbidden("no")
        assert pods.age_seconds == 10.0
        pods.check("team")
        pods._reflectors[1].refused = Forbidden("no")
        assert pods.age_seconds == seconds, "an operator that may read nothing is of no use"


OPEN = streams(hang=True)
ENDED = [listed("5", pod(1)), streams(event("ADDED", 2, "6"), bookmark("9")), streams(event("MODIFIED", 2, "11")), OPEN]
BREAKS = {
    "cut": streams(event("ADDED", 2, "6"), cut=True),
    "cut within a line": streams(event("ADDED", 2, "6"), b'{"type": "DELETED", "obj', cut=True),
    "410": streams(event("ADDED", 2, "6"), {"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}),
    "500": streams(event("ADDED", 2, "6"), {"type": "ERROR", "object": {"code": 500}}),
    "silent": streams(event("ADDED", 2, "6"), hang=True),
}
FAULTS = {
    "500 to a list": refuses(500), "503": refuses(503), "429": refuses(429), "403": refuses(403, "Forbidden"),
    "no answer": never(), "no JSON": streams(b"<html>"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "asked", "told"),
    [
        # A watch that ends is gone on with where it ended; its last event has changed nothing but the version.
        (ENDED, "list, watch from 5, watch from 9, watch from 11", "ADDED actor-1, ADDED actor-2"),
        # One that breaks begins anew with a list that finds what was missed.
        *(
            ([listed("5", pod(1)), end, listed("20", pod(2, "6"), pod(3)), OPEN],
             "list, watch from 5, list, watch from 20", "ADDED actor-1, ADDED actor-2, DELETED actor-1, ADDED actor-3")
            for end in BREAKS.values()
        ),
        # Half a list is none.
        ([listed("5", pod(1), more="next"), refuses(410, "Expired"), listed("8", pod(2)), OPEN],
         "list, list, list, watch from 8", "ADDED actor-2"),
        *(([fault, fault, listed("5", pod(1)), OPEN], "list, list, list, watch from 5", "ADDED actor-1")
          for fault in FAULTS.values()),
    ],
    ids=["a watch that ends", *BREAKS, "a list that is forgotten between two pages", *FAULTS],
)  # fmt: skip
async def test_what_is_asked_for_next_and_what_is_told(answers: list[Answer], asked: str, told: str) -> None:
    found, requests, pods = await followed(*answers, until=asked_times(4), silence_seconds=0.3)
    assert (", ".join(requests[:4]), ", ".join(found), pods.synced) == (asked, told, True)


@pytest.mark.parametrize(
    ("answers", "asked", "seconds"),
    [
        (
            [refuses(429, headers={"Retry-After": "1"}), listed("5"), streams(hang=True)],
            ["list", "list", "watch from 5"],
            1.0,
        ),
        # Each wait is about twice as long as the one before: five tries take over 15 times the first wait.
        ([refuses(500)], ["list"] * 5, 15 * QUICK_SECONDS * 0.8),
        # A proxy in between may end watches at once for as long as it likes.
        ([listed("5"), streams()] * 6, ["list", "watch from 5"] * 5, 15 * QUICK_SECONDS * 0.8),
    ],
    ids=["it asks for patience", "failures in a row", "a watch that ends at once"],
)
async def test_a_server_in_trouble_is_given_time(answers: list[Answer], asked: list[str], seconds: float) -> None:
    began = time.monotonic()
    _, found, _ = await followed(*answers, until=asked_times(len(asked)))
    assert (found[: len(asked)], time.monotonic() - began > seconds) == (asked, True)


async def test_the_age_grows_while_nothing_is_heard() -> None:
    ages: list[float] = []

    def heard(server: FakeApiServer, pods: Pods) -> bool:
        ages.append(pods.age_seconds)
        return ages[-1] > 0.4

    await followed(listed("5"), streams(bookmark("6"), hang=True), until=heard)
    assert min(ages) < 0.1


def test_a_server_ends_a_watch_of_what_never_changes_before_it_counts_as_dead() -> None:
    assert WATCH_SECONDS + TIMEOUT_SECONDS / 3 < SILENCE_SECONDS, "with time for its end to arrive"


async def test_a_callback_that_raises_ends_it_loudly() -> None:
    """A copy with a hole in it would be believed."""

    def fails(key: Any, kind: str, pod: Any) -> None:
        raise RuntimeError("a defect")

    async with served(listed("5", pod(1))) as (_, client):
        with pytest.raises(ExceptionGroup, match="unhandled"):
            await asyncio.wait_for(Pods(client, None, fails).run(), 5.0)

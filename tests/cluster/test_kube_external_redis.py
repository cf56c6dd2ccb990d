"""Who removes a shard's log from a Redis that others run, and when: on a real API server, which checks the Job that does it."""

import asyncio
from typing import Any

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden, TooManyRequests, Unavailable
from rljob_operator.kube.apiserver.resources import JOBS, RLJOBS, Object

from tests.cluster.reconciling import (
    TWO_ACTORS,
    BreakingClient,
    Clock,
    Kubelet,
    Run,
    bring_up,
    condition,
    started,
    status_of,
    take_down,
    written,
)

EXTERNAL = {"url": "redis://redis.db:6379", "secretRef": {"name": "login"}}


def job(namespace: str, name: str = "pong", shards: int = 1, **spec: Any) -> Object:
    found = written(namespace, name, **TWO_ACTORS, backoffLimit=9, **spec)
    found["spec"]["replay"] = {**found["spec"].get("replay", {}), "shards": shards, "redis": {"external": EXTERNAL}}
    return found


async def removals(viewer: Client, namespace: str) -> list[str]:
    """The pods after which the Jobs are named."""
    return sorted(each["metadata"]["name"] for each in (await viewer.list(JOBS, namespace)).items)


def refuse_removals(patch: pytest.MonkeyPatch, client: Client, problem: ApiError) -> None:
    """Have the API server answer so to every Job that is to be made."""
    create = type(client).create

    async def refused(self: Client, resource: Any, document: Object, **options: Any) -> Object:
        if resource is JOBS:
            raise problem
        return await create(self, resource, document, **options)

    patch.setattr(type(client), "create", refused)


async def test_a_shard_that_comes_again_keeps_its_log_and_one_of_a_deleted_job_does_not(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    stored = await started(run, viewer, kubelet, job(namespace))
    first = await kubelet.pod("pong", "replay-0")
    await kubelet.end(first, 1)
    for _ in range(4):  # an end is followed by a start half a second later
        await run.settle(viewer, "pong")
        await asyncio.sleep(0.3)
    second = await kubelet.pod("pong", "replay-0")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert await removals(viewer, namespace) == []

    await viewer.delete(RLJOBS, namespace, "pong")
    await Run(client, namespace).turn(viewer, "pong")  # another operator, which has never seen the job
    name = second["metadata"]["name"]
    assert await removals(viewer, namespace) == [name]
    (container,) = (await viewer.get(JOBS, namespace, name))["spec"]["template"]["spec"]["containers"]
    assert container["command"][-3:] == [
        EXTERNAL["url"], f"{namespace}/pong/{stored['metadata']['uid']}/replay-0", "0",
    ]  # fmt: skip
    await Run(client, namespace).turn(viewer, "pong")
    assert await removals(viewer, namespace) == [name]


async def test_a_suspended_job_keeps_it_and_a_complete_one_does_not(
    viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, job(namespace, shards=2, successPolicy={"rawFrames": 100}))
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": True}})
    await take_down(run, viewer, kubelet, "pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Suspended")[0] == "True"
    assert await removals(viewer, namespace) == []

    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
    await bring_up(run, viewer, kubelet, "pong")
    shards = [(await kubelet.pods("pong"))[f"replay-{number}"][0] for number in (0, 1)]
    clock.updates = 1000
    run.poll.answers[namespace, "pong"] = clock.answer()
    await take_down(run, viewer, kubelet, "pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Complete")[0] == "True"
    assert await removals(viewer, namespace) == sorted(each["metadata"]["name"] for each in shards)


@pytest.mark.parametrize(
    "problem", [TooManyRequests("later", code=429), Unavailable("no answer")], ids=["429", "silence"]
)
async def test_a_removal_that_has_to_wait_is_made_at_the_next_look(
    viewer: Client,
    client: BreakingClient,
    kubelet: Kubelet,
    run: Run,
    namespace: str,
    problem: ApiError,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await started(run, viewer, kubelet, job(namespace))
    name = (await kubelet.pod("pong", "replay-0"))["metadata"]["name"]
    await viewer.delete(RLJOBS, namespace, "pong")
    with monkeypatch.context() as patch:
        refuse_removals(patch, client, problem)
        with pytest.raises(type(problem)):
            await run.turn(viewer, "pong")
    assert await removals(viewer, namespace) == []
    await run.turn(viewer, "pong")
    assert await removals(viewer, namespace) == [name]


@pytest.mark.parametrize(
    "problem",
    [Forbidden("exceeded quota", code=403), Unavailable("failed calling webhook", code=500)],
    ids=["quota", "webhook"],
)
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_removal_that_may_not_be_made_keeps_nothing(
    viewer: Client,
    client: BreakingClient,
    kubelet: Kubelet,
    run: Run,
    namespace: str,
    propagation: str,
    problem: ApiError,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await started(run, viewer, kubelet, job(namespace))
    refuse_removals(monkeypatch, client, problem)
    await viewer.delete(RLJOBS, namespace, "pong", propagation=propagation)
    await run.turn(viewer, "pong")
    assert await removals(viewer, namespace) == []
    assert f"stays until it expires: {problem}" in caplog.text

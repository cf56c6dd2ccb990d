"""Who removes a shard's log from a Redis that others run, and when: on a real API server, which checks the Job that does it."""

import asyncio
from typing import Any

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden, TooManyRequests, Unavailable
from rljob_operator.kube.apiserver.resources import JOBS, RLJOBS, Object

from tests.cluster.reconciling import TWO_ACTORS, OneJob
from tests.unit.api.bad_manifests import BASE, document

REPLAY = document(BASE)["spec"].get("replay", {})
EXTERNAL = {"url": "redis://redis.db:6379", "secretRef": {"name": "login"}}


def spec(shards: int = 1) -> Object:
    return {**TWO_ACTORS, "backoffLimit": 9, "replay": {**REPLAY, "shards": shards, "redis": {"external": EXTERNAL}}}


async def removals(pong: OneJob) -> list[str]:
    """The pods after which the Jobs are named."""
    return sorted(each["metadata"]["name"] for each in (await pong.viewer.list(JOBS, pong.namespace)).items)


def refuse_removals(patch: pytest.MonkeyPatch, client: Client, problem: ApiError) -> None:
    """Have the API server answer so to every Job that is to be made."""
    create = type(client).create

    async def refused(self: Client, resource: Any, document: Object, **options: Any) -> Object:
        if resource is JOBS:
            raise problem
        return await create(self, resource, document, **options)

    patch.setattr(type(client), "create", refused)


async def test_a_shard_that_comes_again_keeps_its_log_and_one_of_a_deleted_job_does_not(pong: OneJob) -> None:
    stored = await pong.start(**spec())
    first = await pong.pod("replay-0")
    await pong.end("replay-0")
    for _ in range(4):  # an end is followed by a start half a second later
        await pong.settle()
        await asyncio.sleep(0.3)
    second = await pong.pod("replay-0")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert await removals(pong) == []

    await pong.viewer.delete(RLJOBS, *pong.key)
    name = second["metadata"]["name"]
    for _ in range(2):
        pong.next_operator()  # which has never seen the job
        await pong.turn()
        assert await removals(pong) == [name]
    (container,) = (await pong.viewer.get(JOBS, pong.namespace, name))["spec"]["template"]["spec"]["containers"]
    of_the_shard = f"{pong.namespace}/pong/{stored['metadata']['uid']}/replay-0"
    assert container["command"][-3:] == [EXTERNAL["url"], of_the_shard, "0"]


@pytest.mark.usefixtures("clock")
async def test_a_suspended_job_keeps_it_and_a_complete_one_does_not(pong: OneJob) -> None:
    await pong.start(**spec(shards=2), successPolicy={"rawFrames": 100})
    await pong.suspend()
    await pong.expect(Suspended=("True",))
    assert await removals(pong) == []

    await pong.resume()
    shards = [await pong.pod(f"replay-{number}") for number in (0, 1)]
    pong.learns(updates=1000)
    await pong.take_down()
    await pong.expect(Complete=("True",))
    assert await removals(pong) == sorted(each["metadata"]["name"] for each in shards)


@pytest.mark.parametrize(
    "problem", [TooManyRequests("later", code=429), Unavailable("no answer")], ids=["429", "silence"]
)
async def test_a_removal_that_has_to_wait_is_made_at_the_next_look(
    pong: OneJob, problem: ApiError, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pong.start(**spec())
    name = (await pong.pod("replay-0"))["metadata"]["name"]
    await pong.viewer.delete(RLJOBS, *pong.key)
    with monkeypatch.context() as patch:
        refuse_removals(patch, pong.client, problem)
        with pytest.raises(type(problem)):
            await pong.turn()
    assert await removals(pong) == []
    await pong.turn()
    assert await removals(pong) == [name]


@pytest.mark.parametrize(
    "problem",
    [Forbidden("exceeded quota", code=403), Unavailable("failed calling webhook", code=500)],
    ids=["quota", "webhook"],
)
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_removal_that_may_not_be_made_keeps_nothing(
    pong: OneJob,
    propagation: str,
    problem: ApiError,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await pong.start(**spec())
    refuse_removals(monkeypatch, pong.client, problem)
    await pong.viewer.delete(RLJOBS, *pong.key, propagation=propagation)
    await pong.turn()
    assert await removals(pong) == []
    assert f"stays until it expires: {problem}" in caplog.text

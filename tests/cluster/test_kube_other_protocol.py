"""A job whose image speaks another protocol: held, in words, until the image is another one. Nothing is counted as a failure."""

from __future__ import annotations

import asyncio

import pytest
from rljob.api.exit_codes import EXIT_PROTOCOL
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import Kubelet, Run, bring_up, written
from tests.cluster.test_kube_reconcile import TWO_ACTORS, Clock, at_work, condition, status_of

LAST_WORDS = "rljob: this image is of release 0.2.0 and speaks protocol 2; the job speaks protocol 1\n"
NO_CHECKPOINT = {"onSuspend": "Skip"}


async def refuse(kubelet: Kubelet, member: str) -> Object:
    """What the kubelet says of a member whose image refuses the job's protocol."""
    (pod,) = (await kubelet.pods("pong"))[member]
    await kubelet.bind(pod)
    await kubelet.end(pod, EXIT_PROTOCOL, message=LAST_WORDS)
    return pod


def message(status: Object) -> str:
    (found,) = [each for each in status["conditions"] if each["type"] == "Accepted"]
    return str(found["message"])


async def turns(run: Run, viewer: Client, clock: Clock, seconds: float = 60.0) -> None:
    for _ in range(6):
        clock.seconds += seconds / 6
        await run.settle(viewer, "pong")


@pytest.mark.parametrize("mended", ["by another image", "by deleting the pod"])
def test_a_job_that_starts_is_held(cluster: ControlPlane, namespace: str, mended: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            clock = Clock()
            run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
            await viewer.create(
                RLJOBS, written(namespace, "pong", image="rl:2", checkpoint=NO_CHECKPOINT, **TWO_ACTORS)
            )
            await run.settle(viewer, "pong")
            pod = await refuse(kubelet, "replay-0")
            await turns(run, viewer, clock, 600.0)
            there = {name: len(each) for name, each in (await kubelet.pods("pong")).items()}
            assert there == {"replay-0": 1, "learner": 1, "actor-0": 1}, "what starts first, and none of them twice"
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, "Accepted") == ("False", "ImageSchemaMismatch")
            assert message(status).startswith(
                "image rl:2 of replay-0: this image is of release 0.2.0 and speaks protocol 2; the job speaks protocol 1; "
                "use an image of release"
            )
            assert condition(status, "Ready") == ("False", "Accepting")
            assert status["restarts"]["counted"] == 0
            if mended == "by another image":
                await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": True, "image": "rl:1"}})
                await run.settle(viewer, "pong")
                await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
            else:
                await viewer.delete(PODS, namespace, pod["metadata"]["name"], grace_seconds=0)
            await bring_up(run, viewer, kubelet, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, "Accepted") == ("True", "Valid")
            assert status["actors"]["ready"] == 2

    asyncio.run(story())


def test_what_runs_goes_on(cluster: ControlPlane, namespace: str) -> None:
    """As where a tag was given to another image meanwhile."""

    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            clock = Clock()
            run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
            await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
            await bring_up(run, viewer, kubelet, "pong")
            before = (await kubelet.pods("pong"))["learner"][0]["metadata"]["uid"]
            await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"actors": {"replicas": 3}}})
            await run.settle(viewer, "pong")
            await refuse(kubelet, "actor-2")
            await turns(run, viewer, clock)
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, "Accepted") == ("False", "ImageSchemaMismatch")
            assert condition(status, "LearnerReady")[0] == "True"
            pods = await kubelet.pods("pong")
            assert pods["learner"][0]["metadata"]["uid"] == before
            assert [len(pods[f"actor-{k}"]) for k in range(3)] == [1, 1, 1]

    asyncio.run(story())

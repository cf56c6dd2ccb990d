"""A job whose image speaks another protocol: held, in words, until the image is another one. Nothing is counted as a failure."""

from __future__ import annotations

import pytest
from rljob.api.exit_codes import EXIT_PROTOCOL
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object

from tests.cluster.reconciling import (
    TWO_ACTORS,
    Clock,
    Kubelet,
    Run,
    bring_up,
    condition,
    message,
    started,
    status_of,
    written,
)

LAST_WORDS = "rljob: this image is of release 0.2.0 and speaks protocol 2; the job speaks protocol 1\n"


async def refuse(kubelet: Kubelet, member: str) -> Object:
    """What the kubelet says of a member whose image refuses the job's protocol."""
    pod = await kubelet.pod("pong", member)
    await kubelet.bind(pod)
    await kubelet.end(pod, EXIT_PROTOCOL, message=LAST_WORDS)
    return pod


async def turns(run: Run, viewer: Client, clock: Clock, seconds: float = 60.0) -> None:
    for _ in range(6):
        clock.seconds += seconds / 6
        await run.settle(viewer, "pong")


@pytest.mark.parametrize("mended", ["by another image", "by deleting the pod"])
async def test_a_job_that_starts_is_held(
    viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str, mended: str
) -> None:
    await run.begin(viewer, written(namespace, "pong", image="rl:2", checkpoint={"onSuspend": "Skip"}, **TWO_ACTORS))
    pod = await refuse(kubelet, "replay-0")
    await turns(run, viewer, clock, 600.0)
    there = {name: len(each) for name, each in (await kubelet.pods("pong")).items()}
    assert there == {"replay-0": 1, "learner": 1, "actor-0": 1}, "what starts first, and none of them twice"
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("False", "ImageSchemaMismatch")
    assert message(status, "Accepted").startswith(
        "image rl:2 of replay-0: this image is of release 0.2.0 and speaks protocol 2; the job speaks protocol 1; "
        "use an image of release"
    )
    assert condition(status, "Ready") == ("False", "Accepting")
    assert status["restarts"]["counted"] == 0
    if mended == "by another image":
        await run.change(viewer, "pong", suspend=True, image="rl:1")
        await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
    else:
        await viewer.delete(PODS, namespace, pod["metadata"]["name"], grace_seconds=0)
    await bring_up(run, viewer, kubelet, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("True", "Valid")
    assert status["actors"]["ready"] == 2


async def test_what_runs_goes_on(viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str) -> None:
    """As where a tag was given to another image meanwhile."""
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
    before = (await kubelet.pods("pong"))["learner"][0]["metadata"]["uid"]
    await run.change(viewer, "pong", actors={"replicas": 3})
    await refuse(kubelet, "actor-2")
    await turns(run, viewer, clock)
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("False", "ImageSchemaMismatch")
    assert condition(status, "LearnerReady")[0] == "True"
    pods = await kubelet.pods("pong")
    assert pods["learner"][0]["metadata"]["uid"] == before
    assert [len(pods[f"actor-{k}"]) for k in range(3)] == [1, 1, 1]

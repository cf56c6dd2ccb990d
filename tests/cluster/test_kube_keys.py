"""Secrets that a user deletes under a running job: they come back as they were, or it is said that they are lost."""

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import RLJOBS, SECRETS, Object
from rljob_operator.kube.job.children import SECRETS_SECONDS
from rljob_operator.kube.job.waiting_claims import HELD_UP_SECONDS
from rljob_operator.kube.render import names

from tests.cluster.reconciling import (
    TWO_ACTORS,
    BreakingClient,
    Clock,
    Kubelet,
    Run,
    bring_up,
    condition,
    message,
    started,
    status_of,
    take_down,
    written,
)

LENIENT = {"backoffLimit": 9}
CORE, ACTORS = names.core_secret("pong"), names.actor_secret("pong")


async def secrets(viewer: Client, namespace: str) -> dict[str, Object]:
    """Name -> data."""
    return {each["metadata"]["name"]: each["data"] for each in (await viewer.list(SECRETS, namespace)).items}


async def end_an_actor(run: Run, viewer: Client, kubelet: Kubelet, clock: Clock) -> None:
    """Have one end, and its next one started where it can be."""
    await kubelet.end(await kubelet.pod("pong", "actor-1"), 1)
    for _ in range(2):
        clock.seconds += SECRETS_SECONDS + 1.0
        await run.settle(viewer, "pong")


@pytest.mark.parametrize("restarted", [False, True], ids=["same-operator", "next-operator"])
async def test_the_actors_keys_come_back_as_they_were(
    viewer: Client,
    client: BreakingClient,
    kubelet: Kubelet,
    clock: Clock,
    run: Run,
    namespace: str,
    restarted: bool,
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS, **LENIENT))
    before = await secrets(viewer, namespace)
    await viewer.delete(SECRETS, namespace, ACTORS)
    if restarted:
        run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
    await end_an_actor(run, viewer, kubelet, clock)
    assert await secrets(viewer, namespace) == before
    actor = await kubelet.pod("pong", "actor-1")
    assert "status" not in actor or actor["status"]["phase"] == "Pending", "the next one was made"


async def test_a_pod_that_waits_for_its_secret_gets_it(
    viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    await run.begin(viewer, written(namespace, "pong", **TWO_ACTORS))
    await kubelet.bind(await kubelet.pod("pong", "actor-0"))
    before = await secrets(viewer, namespace)
    await viewer.delete(SECRETS, namespace, ACTORS)
    clock.seconds += max(SECRETS_SECONDS, HELD_UP_SECONDS) + 1.0
    await run.settle(viewer, "pong")
    assert await secrets(viewer, namespace) == before


async def test_keys_that_are_lost_are_made_anew_in_a_suspension(
    viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS, **LENIENT))
    before = await secrets(viewer, namespace)
    await viewer.delete(SECRETS, namespace, CORE)
    await end_an_actor(run, viewer, kubelet, clock)
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("False", "KeysLost")
    words = message(status, "Accepted")
    assert words.startswith(f"Secret {CORE} was deleted; what runs goes on")
    assert words.endswith(f": suspend the job, delete Secret {ACTORS}, resume it")
    assert set(await secrets(viewer, namespace)) == {ACTORS}, "no new keys beside the old ones"
    running = {m for m, (pod,) in (await kubelet.pods("pong")).items() if pod["status"]["phase"] == "Running"}
    assert running == {"replay-0", "learner", "actor-0"}, "what runs goes on"

    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": True}})
    await take_down(run, viewer, kubelet, "pong")
    await viewer.delete(SECRETS, namespace, ACTORS)
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
    clock.seconds += SECRETS_SECONDS + 1.0
    await bring_up(run, viewer, kubelet, "pong")
    after = await secrets(viewer, namespace)
    assert after.keys() == before.keys()
    assert after[CORE]["actor.json"] == after[ACTORS]["actor.json"]
    assert not {*before[CORE].values()} & {*after[CORE].values()}
    status = await status_of(viewer, namespace, "pong")
    assert (condition(status, "Accepted"), status["actors"]["ready"]) == (("True", "Valid"), 2)

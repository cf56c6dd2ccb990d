"""Secrets that a user deletes under a running job: they come back as they were, or it is said that they are lost."""

import pytest
from rljob_operator.core.member import Role
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
ACTOR_KEYS = names.keys_secret("pong", Role.ACTOR)
MASTER, TOKEN = names.operator_secret("pong"), names.token_secret("pong")


async def secrets(viewer: Client, namespace: str) -> dict[str, Object]:
    """Name -> data."""
    return {each["metadata"]["name"]: each["data"] for each in (await viewer.list(SECRETS, namespace)).items}


async def delete(viewer: Client, namespace: str, *gone: str) -> None:
    for name in gone:
        await viewer.delete(SECRETS, namespace, name)


async def end_an_actor(run: Run, viewer: Client, kubelet: Kubelet, clock: Clock) -> None:
    """Have one end, and its next one started where it can be."""
    await kubelet.end(await kubelet.pod("pong", "actor-1"), 1)
    for _ in range(2):
        clock.seconds += SECRETS_SECONDS + 1.0
        await run.settle(viewer, "pong")


@pytest.mark.parametrize("gone", [(ACTOR_KEYS,), (MASTER,), (TOKEN,), (MASTER, TOKEN)], ids="-".join)
@pytest.mark.parametrize("restarted", [False, True], ids=["same-operator", "next-operator"])
async def test_what_others_know_comes_back_as_it_was(
    viewer: Client,
    client: BreakingClient,
    kubelet: Kubelet,
    clock: Clock,
    run: Run,
    namespace: str,
    gone: tuple[str, ...],
    restarted: bool,
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS, **LENIENT))
    before = await secrets(viewer, namespace)
    await delete(viewer, namespace, *gone)
    if restarted:
        run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
    await end_an_actor(run, viewer, kubelet, clock)
    after = await secrets(viewer, namespace)
    assert after.keys() == before.keys()
    keys = [name for name in before if name not in (MASTER, TOKEN)]
    assert {name: after[name] for name in keys} == {name: before[name] for name in keys}
    assert after[MASTER]["keys.json"] == before[MASTER]["keys.json"]
    assert after[MASTER]["token"] == after[TOKEN]["token"]
    assert (after[TOKEN] == before[TOKEN]) == (set(gone) != {MASTER, TOKEN}), "the token alone may be another one"
    actor = await kubelet.pod("pong", "actor-1")
    assert "status" not in actor or actor["status"]["phase"] == "Pending", "the next one was made"


async def test_a_pod_that_waits_for_its_secret_gets_it(
    viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    await run.begin(viewer, written(namespace, "pong", **TWO_ACTORS))
    await kubelet.bind(await kubelet.pod("pong", "replay-0"))
    before = await secrets(viewer, namespace)
    await delete(viewer, namespace, names.keys_secret("pong", Role.REPLAY))
    clock.seconds += max(SECRETS_SECONDS, HELD_UP_SECONDS) + 1.0
    await run.settle(viewer, "pong")
    assert await secrets(viewer, namespace) == before


async def test_keys_that_nobody_knows_any_more_are_made_anew_in_a_suspension(
    viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS, **LENIENT))
    before = await secrets(viewer, namespace)
    await delete(viewer, namespace, MASTER, ACTOR_KEYS)
    await end_an_actor(run, viewer, kubelet, clock)
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("False", "KeysLost")
    words = message(status, "Accepted")
    left = sorted(set(before) - {MASTER, ACTOR_KEYS, TOKEN})
    assert "['actor'] are missing" in words
    assert all(name in words for name in left), words
    assert words.startswith(f"Secret {MASTER} was deleted")
    assert "suspend the job, delete Secret " in words
    assert set(await secrets(viewer, namespace)) == {*left, TOKEN}, "no new keys beside the old ones"
    running = {m for m, (pod,) in (await kubelet.pods("pong")).items() if pod["status"]["phase"] == "Running"}
    assert running == {"replay-0", "learner", "actor-0"}, "what runs goes on"

    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": True}})
    await take_down(run, viewer, kubelet, "pong")
    await delete(viewer, namespace, *left)
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
    clock.seconds += SECRETS_SECONDS + 1.0
    await bring_up(run, viewer, kubelet, "pong")
    after = await secrets(viewer, namespace)
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in (MASTER, ACTOR_KEYS, *left))
    status = await status_of(viewer, namespace, "pong")
    assert (condition(status, "Accepted"), status["actors"]["ready"]) == (("True", "Valid"), 2)

"""What goes wrong between an operator, its user and the API server, and how it comes right.

Secrets that a user deletes under a running job: they come back as they were, or it is said that they are lost.
"""

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Unavailable
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, RLJOBS, SECRETS, Object
from rljob_operator.kube.job.children import SECRETS_SECONDS
from rljob_operator.kube.job.waits import HELD_UP_SECONDS
from rljob_operator.kube.render import names

from tests.cluster.control_plane import ControlPlane, config_map
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

BAD_TEMPLATE = {"podTemplate": {"spec": {"tolerations": [{"key": "spare", "operator": "Sometimes"}]}}}


async def test_a_refused_job_without_a_place_for_checkpoints_is_mended_as_it_says(
    viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", learner=BAD_TEMPLATE, **TWO_ACTORS))
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("False", "PodTemplateRejected")
    words = message(status, "Accepted")
    assert "Sometimes" in words
    assert words.endswith("set suspend: true with it, and resume")

    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": True, "learner": {"podTemplate": None}}})
    await take_down(run, viewer, kubelet, "pong")
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
    await bring_up(run, viewer, kubelet, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert (condition(status, "Accepted"), status["actors"]["ready"]) == (("True", "Valid"), 2)


async def test_a_namespace_that_is_being_deleted_is_told_as_that(
    cluster: ControlPlane, viewer: Client, run: Run, namespace: str
) -> None:
    await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
    code, answer = cluster.request("DELETE", f"/api/v1/namespaces/{namespace}")
    assert code == 200, answer
    await run.settle(viewer, "pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Accepted") == ("False", "NamespaceTerminating")


async def test_an_actor_that_was_asked_in_vain_and_may_stay_is_asked_no_more(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"actors": {"replicas": 1}}})
    await run.look(viewer)
    client.reset()
    client.loses = ("delete", "pods")
    with pytest.raises(Unavailable):
        await run.reconciler.reconcile((namespace, "pong"))
    client.loses = None
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"actors": {"replicas": 2}}})
    asked = [member for member, (pod,) in (await kubelet.pods("pong")).items() if is_asked(pod)]
    assert len(asked) == 1, "it was noted, and not asked"
    await run.settle(viewer, "pong")
    pods = await kubelet.pods("pong")
    assert not any(is_asked(pod) for (pod,) in pods.values())
    assert "deletionTimestamp" not in pods[asked[0]][0]["metadata"]

    await kubelet.end(pods[asked[0]][0], 1)
    await run.settle(viewer, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert status["restarts"] == {"counted": 0, "ignored": 1}, "its end is one that was not asked for"


def is_asked(pod: Object) -> bool:
    return names.ASKED_ANNOTATION in pod["metadata"].get("annotations", {})


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


@pytest.mark.parametrize("edited", [False, True], ids=["deleted", "edited"])
async def test_keys_that_are_lost_are_made_anew_in_a_suspension(
    viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str, edited: bool
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS, **LENIENT))
    before = await secrets(viewer, namespace)
    if edited:
        await viewer.patch(SECRETS, namespace, CORE, {"data": {"learner.json": None}})
    else:
        await viewer.delete(SECRETS, namespace, CORE)
    await end_an_actor(run, viewer, kubelet, clock)
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("False", "KeysLost")
    words, left = message(status, "Accepted"), [CORE, ACTORS] if edited else [ACTORS]
    assert words.startswith(f"Secret {CORE} {'lacks keys' if edited else 'was deleted'}; what runs goes on")
    assert words.endswith(f": suspend the job, {', '.join(f'delete Secret {each}' for each in left)}, resume it")
    assert set(await secrets(viewer, namespace)) == {*left}, "no new keys beside the old ones"
    running = {m for m, (pod,) in (await kubelet.pods("pong")).items() if pod["status"]["phase"] == "Running"}
    assert running == {"replay-0", "learner", "actor-0"}, "what runs goes on"

    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": True}})
    await take_down(run, viewer, kubelet, "pong")
    for each in left:
        await viewer.delete(SECRETS, namespace, each)
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
    clock.seconds += SECRETS_SECONDS + 1.0
    await bring_up(run, viewer, kubelet, "pong")
    after = await secrets(viewer, namespace)
    assert after.keys() == before.keys()
    assert after[CORE]["actor.json"] == after[ACTORS]["actor.json"]
    assert not {*before[CORE].values()} & {*after[CORE].values()}
    status = await status_of(viewer, namespace, "pong")
    assert (condition(status, "Accepted"), status["actors"]["ready"]) == (("True", "Valid"), 2)


async def test_what_a_job_left_that_was_deleted_without_it_is_named_with_how_to_remove_it(
    viewer: Client, run: Run, namespace: str
) -> None:
    """Its pods would be found under the names of the next job's."""
    left = config_map("pong-job", namespace, names.labels("pong"))
    await viewer.create(CONFIG_MAPS, left)
    await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
    await run.settle(viewer, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("False", "NameConflict")
    place = f"-n {namespace} -l app.kubernetes.io/managed-by=rljob,rljob.dev/job=pong"
    assert f"persistentvolumeclaims {place}" in message(status, "Accepted")

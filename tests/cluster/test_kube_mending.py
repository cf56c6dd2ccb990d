"""What goes wrong between an operator, its user and the API server, and how it comes right.

Secrets that a user deletes under a running job: they come back as they were, or it is said that they are lost.
"""

import re

import pytest
from rljob_operator.kube.apiserver.errors import Unavailable
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, SECRETS, Object
from rljob_operator.kube.job.children import SECRETS_SECONDS
from rljob_operator.kube.job.observe import HELD_UP_SECONDS
from rljob_operator.kube.render import names

from tests.cluster.control_plane import ControlPlane, config_map
from tests.cluster.reconciling import TWO_ACTORS, Clock, OneJob

BAD_TEMPLATE = {"podTemplate": {"spec": {"tolerations": [{"key": "spare", "operator": "Sometimes"}]}}}


async def test_a_refused_job_without_a_place_for_checkpoints_is_mended_as_it_says(clock: Clock, pong: OneJob) -> None:
    await pong.start(learner=BAD_TEMPLATE, **TWO_ACTORS)
    await pong.expect(Accepted=("False", "PodTemplateRejected"))
    assert re.search("Sometimes.*set suspend: true with it, and resume$", await pong.message("Accepted"))
    await pong.suspend(learner={"podTemplate": None})
    await pong.resume()
    assert (await pong.expect(Accepted=("True", "Valid")))["actors"]["ready"] == 2


async def test_a_namespace_that_is_being_deleted_is_told_as_that(cluster: ControlPlane, pong: OneJob) -> None:
    await pong.create(**TWO_ACTORS)
    code, answer = cluster.request("DELETE", f"/api/v1/namespaces/{pong.namespace}")
    assert code == 200, answer
    await pong.settle()
    await pong.expect(Accepted=("False", "NamespaceTerminating"))


async def test_an_actor_that_was_asked_in_vain_and_may_stay_is_asked_no_more(pong: OneJob) -> None:
    await pong.start(**TWO_ACTORS)
    await pong.patch(actors={"replicas": 1})
    pong.client.loses = ("delete", "pods")
    with pytest.raises(Unavailable):
        await pong.turn()
    pong.client.loses = None
    await pong.patch(actors={"replicas": 2})
    asked = [member for member, (pod,) in (await pong.pods()).items() if is_asked(pod)]
    assert len(asked) == 1, "it was noted, and not asked"
    await pong.settle()
    pods = await pong.pods()
    assert not any(is_asked(pod) for (pod,) in pods.values())
    assert "deletionTimestamp" not in pods[asked[0]][0]["metadata"]

    await pong.end(asked[0])
    await pong.settle()
    assert (await pong.status())["restarts"] == {"counted": 0, "ignored": 1}, "its end is one that was not asked for"


def is_asked(pod: Object) -> bool:
    return names.ASKED_ANNOTATION in pod["metadata"].get("annotations", {})


LENIENT = {"backoffLimit": 9}
CORE, ACTORS = names.core_secret("pong"), names.actor_secret("pong")


async def secrets(pong: OneJob) -> dict[str, Object]:
    """Name -> data."""
    return {each["metadata"]["name"]: each["data"] for each in (await pong.viewer.list(SECRETS, pong.namespace)).items}


async def lose(pong: OneJob, secret: str) -> dict[str, Object]:
    """A Secret is deleted; all that there were before."""
    before = await secrets(pong)
    await pong.viewer.delete(SECRETS, pong.namespace, secret)
    return before


async def end_an_actor(pong: OneJob) -> None:
    """Have one end, and its next one started where it can be."""
    await pong.end("actor-1")
    for _ in range(2):
        pong.clock.seconds += SECRETS_SECONDS + 1.0
        await pong.settle()


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("restarted", [False, True], ids=["same-operator", "next-operator"])
async def test_the_actors_keys_come_back_as_they_were(pong: OneJob, restarted: bool) -> None:
    await pong.start(**TWO_ACTORS, **LENIENT)
    before = await lose(pong, ACTORS)
    if restarted:
        pong.next_operator()
    await end_an_actor(pong)
    assert await secrets(pong) == before
    actor = await pong.pod("actor-1")
    assert "status" not in actor or actor["status"]["phase"] == "Pending", "the next one was made"


async def test_a_pod_that_waits_for_its_secret_gets_it(clock: Clock, pong: OneJob) -> None:
    await pong.begin(**TWO_ACTORS)
    await pong.kubelet.bind(await pong.pod("actor-0"))
    before = await lose(pong, ACTORS)
    clock.seconds += max(SECRETS_SECONDS, HELD_UP_SECONDS) + 1.0
    await pong.settle()
    assert await secrets(pong) == before


@pytest.mark.parametrize("edited", [False, True], ids=["deleted", "edited"])
async def test_keys_that_are_lost_are_made_anew_in_a_suspension(clock: Clock, pong: OneJob, edited: bool) -> None:
    await pong.start(**TWO_ACTORS, **LENIENT)
    before, left = await secrets(pong), [CORE, ACTORS] if edited else [ACTORS]
    if edited:
        await pong.viewer.patch(SECRETS, pong.namespace, CORE, {"data": {"learner.json": None}})
    else:
        await lose(pong, CORE)
    await end_an_actor(pong)
    await pong.expect(Accepted=("False", "KeysLost"))
    said = await pong.message("Accepted")
    assert said.startswith(f"Secret {CORE} {'lacks keys' if edited else 'was deleted'}; what runs goes on")
    assert said.endswith(f": suspend the job, {', '.join(f'delete Secret {each}' for each in left)}, resume it")
    assert set(await secrets(pong)) == {*left}, "no new keys beside the old ones"
    running = {m for m, (pod,) in (await pong.pods()).items() if pod["status"]["phase"] == "Running"}
    assert running == {"replay-0", "learner", "actor-0"}, "what runs goes on"

    await pong.suspend()
    for each in left:
        await lose(pong, each)
    clock.seconds += SECRETS_SECONDS + 1.0
    await pong.resume()
    after = await secrets(pong)
    assert after.keys() == before.keys()
    assert after[CORE]["actor.json"] == after[ACTORS]["actor.json"]
    assert not {*before[CORE].values()} & {*after[CORE].values()}
    assert (await pong.expect(Accepted=("True", "Valid")))["actors"]["ready"] == 2


async def test_what_a_job_left_that_was_deleted_without_it_is_named_with_how_to_remove_it(pong: OneJob) -> None:
    """Its pods would be found under the names of the next job's."""
    left = config_map("pong-job", pong.namespace, names.labels("pong"))
    await pong.viewer.create(CONFIG_MAPS, left)
    await pong.begin(**TWO_ACTORS)
    await pong.expect(Accepted=("False", "NameConflict"))
    place = f"-n {pong.namespace} -l app.kubernetes.io/managed-by=rljob,rljob.dev/job=pong"
    assert f"persistentvolumeclaims {place}" in await pong.message("Accepted")

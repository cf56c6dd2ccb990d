"""The reconciler on a real API server: what it makes and counts. Of turns that are cut off: test_kube_killed.py."""

import asyncio
import dataclasses
from typing import Any

import pytest
from rljob.api.learner_status import LearnerStatus
from rljob_operator.core.rules import start_and_drain
from rljob_operator.kube.apiserver.errors import Conflict
from rljob_operator.kube.apiserver.resources import RLJOBS, SECRETS
from rljob_operator.kube.render import names
from rljob_operator.polls.poll import Answer

from tests.cluster.control_plane import ControlPlane, connected
from tests.cluster.reconciling import TWO_ACTORS, BreakingClient, Clock, OneJob, Run, children_of, said_in

MEMBERS = ("replay-0", "learner", "actor-0", "actor-1")


async def test_children_are_made_once_and_a_second_turn_writes_nothing(pong: OneJob) -> None:
    job = await pong.start(**TWO_ACTORS)
    pods = await pong.pods()
    assert {member: len(each) for member, each in pods.items()} == dict.fromkeys(MEMBERS, 1)
    children = await children_of(pong.viewer, *pong.key)
    for child in children:
        (owner,) = child["metadata"]["ownerReferences"]
        assert {"uid": job["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}.items() <= owner.items()
    status = await pong.expect(LearnerReady=("True",))
    assert status["actors"]["ready"] == 2
    assert not await pong.calls()
    poll = pong.run.poll
    pong.next_operator()  # one that starts anew finds all as it should be
    await pong.settle()
    after = await children_of(pong.viewer, *pong.key)
    assert {each["metadata"]["uid"] for each in after} == {each["metadata"]["uid"] for each in children}
    assert poll.learner(*pong.key).url.startswith("http://10.1.0.7:")  # type: ignore[union-attr]
    await pong.end("learner")
    await pong.turn()
    assert pong.run.poll.learner(*pong.key) is None, "its address may be another pod's by now"


async def test_a_scale_down_names_its_victims_before_it_deletes_them(pong: OneJob) -> None:
    await pong.start(actors={"replicas": 3})
    await pong.patch(actors={"replicas": 1})
    await pong.calls()
    order = [call for call in pong.client.order if call[0] in ("patch", "delete")]
    assert order[0] == ("patch", "rljobs/status"), "the status says first what goes"
    assert order.index(("patch", "pods")) < order.index(("delete", "pods"))
    victims = {
        member: pods[0]["metadata"]
        for member, pods in (await pong.pods()).items()
        if "deletionTimestamp" in pods[0]["metadata"]
    }
    assert len(victims) == 2
    (stays,) = {"actor-0", "actor-1", "actor-2"} - set(victims)
    assert all(names.ASKED_ANNOTATION in about["annotations"] for about in victims.values())
    await pong.run.look(pong.viewer)
    await pong.finish_deleted()
    await pong.settle()
    assert set(await pong.pods()) == {"replay-0", "learner", stays}
    assert (await pong.status())["restarts"] == {"counted": 0, "ignored": 0}
    await pong.patch(actors={"replicas": 2})
    await pong.bring_up()
    assert len(await pong.pods()) == 4


@pytest.mark.parametrize("rounds", [0, 1, 2])
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_job_may_be_deleted_in_every_state(pong: OneJob, rounds: int, propagation: str) -> None:
    await pong.create(**TWO_ACTORS)
    for _ in range(rounds):
        await pong.settle()
        await pong.start_pods()
    await pong.viewer.delete(RLJOBS, *pong.key, propagation=propagation)
    assert sum(len(pods) for pods in (await pong.pods()).values()) == (0, 3, 4)[rounds]
    await pong.settle()
    goes = ["deletionTimestamp" in pod["metadata"] for pods in (await pong.pods()).values() for pod in pods]
    assert propagation == "Background" or all(goes)
    await pong.calls()
    assert not pong.client.writes


async def test_a_name_that_somebody_else_has_refuses_the_job_and_is_left_alone(clock: Clock, pong: OneJob) -> None:
    async def is_tried_within(seconds: float) -> bool:
        again = await pong.turn()
        return again is not None and 0 < again <= seconds

    about = {"name": "pong-keys-actors", "namespace": pong.namespace}
    theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": {"mine": "1"}}
    kept = await pong.viewer.create(SECRETS, theirs)
    await pong.begin(**TWO_ACTORS)
    await pong.expect(Accepted=("False", "NameConflict"))
    assert await pong.viewer.get(SECRETS, pong.namespace, "pong-keys-actors") == kept
    assert await is_tried_within(30)
    clock.seconds += 31.0
    pong.client.reset()
    assert await is_tried_within(30)
    assert pong.client.calls["get", "secrets"], "it was tried"
    assert not pong.client.calls["patch", "rljobs/status"], "what is said stays, without a moment between"
    await pong.expect(Accepted=("False", "NameConflict"))
    await pong.viewer.delete(SECRETS, pong.namespace, "pong-keys-actors")
    clock.seconds += 31.0
    await pong.settle()
    await pong.expect(Accepted=("True",))
    assert await pong.pods()


async def test_of_two_reconcilers_only_the_one_that_leads_writes(cluster: ControlPlane, pong: OneJob) -> None:
    class NotLeading(Exception):
        pass

    leader = [0]

    def guard_of(number: int) -> Any:
        def guard() -> None:
            if leader[0] != number:
                raise NotLeading

        return guard

    async with (
        connected(cluster, kind=BreakingClient, guard=guard_of(0)) as first,
        connected(cluster, kind=BreakingClient, guard=guard_of(1)) as second,
    ):
        await pong.create(backoffLimit=100, **TWO_ACTORS)
        runs = [Run(first, pong.namespace), Run(second, pong.namespace)]
        for step in range(24):
            if step % 5 == 4:
                leader[0] = 1 - leader[0]
            for run in runs:
                await run.look(pong.viewer)
            results = await asyncio.gather(
                *(run.reconciler.reconcile(pong.key) for run in runs), return_exceptions=True
            )
            for result in results:
                assert result is None or isinstance(result, float | NotLeading | Conflict), result
            if step % 2:
                await pong.start_pods()
            if step == 14:
                await pong.end("learner")
        assert {member: len(pods) for member, pods in (await pong.pods()).items()} == dict.fromkeys(MEMBERS, 1)
        assert (await pong.status())["restarts"] == {"counted": 1, "ignored": 0}


async def test_figures_alone_are_written_every_thirty_seconds_at_most(clock: Clock, pong: OneJob) -> None:
    await pong.start(**TWO_ACTORS)

    async def five_minutes(updates: int) -> int:
        count = 0
        for _ in range(60):
            pong.learns(5.0, updates)
            count += (await pong.calls())["patch", "rljobs/status"]
        return count

    await five_minutes(100)  # until all conditions that depend on figures are as they stay
    assert 5 <= await five_minutes(100) <= 11
    await five_minutes(0)
    assert (await pong.status())["progress"]["learnerUpdates"] == clock.updates, "the last figures are written, too"


async def test_what_trackers_beside_the_learner_meet_is_a_condition_and_its_end_reaches_them(
    clock: Clock, pong: OneJob
) -> None:
    await pong.start(tracking={"mlflow": {"uri": "http://mlflow:5000"}}, successPolicy={"rawFrames": 10_000})

    async def tracked(untracked: dict[str, str] | None) -> tuple[str, ...]:
        clock.seconds += 60.0
        said = dataclasses.replace(clock.answer().status or LearnerStatus(), untracked=untracked)
        pong.run.poll.answers[pong.key] = Answer(said, "")
        await pong.turn()
        return said_in(await pong.status()).get("Tracked", ())[::2]

    assert await tracked(None) == ()
    assert await tracked({"MLflow": "401: who are you?"}) == ("False", "MLflow: 401: who are you?")
    assert await tracked({}) == ("True", "")
    assert pong.run.poll.endings[pong.key] is None
    clock.updates = 2500
    await tracked({})
    assert pong.run.poll.endings[pong.key] == "Complete", "before its pod is asked to leave"


async def test_a_wave_whose_status_is_not_written_yet_is_not_doubled_by_the_next_operator(
    clock: Clock, pong: OneJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_and_drain, "STARTUP_WAVE", 2)
    await pong.create(actors={"replicas": 5})
    pong.next_operator(seen_seconds=3.0)
    for _ in range(2):
        await pong.settle()
        await pong.start_pods()
    calls = await pong.calls()
    assert (calls["create", "pods"], calls["patch", "rljobs/status"]) == (2, 0), "the second wave"
    assert (await pong.status())["actors"]["ready"] == 0
    pong.next_operator(seen_seconds=3.0)
    for _ in range(3):
        await pong.turn()
    assert [len(pods) for pods in (await pong.pods()).values()] == [1] * 7
    clock.seconds += 3.1
    await pong.turn()
    assert (await pong.status())["actors"]["ready"] == 3


async def test_actors_that_come_one_by_one_are_told_of_together(clock: Clock, pong: OneJob) -> None:
    await pong.create(actors={"replicas": 6})
    pong.next_operator(seen_seconds=3.0)
    await pong.settle()
    await pong.start_pods()
    await pong.settle()
    clock.seconds += 10.0
    writes, again = 0, None
    for actor in range(1, 6):
        await pong.start_pods(f"actor-{actor}")
        pong.client.reset()
        again = await pong.turn()
        writes += pong.client.calls["patch", "rljobs/status"]
        clock.seconds += 0.1
    assert writes == 1, "the first"
    assert again is not None
    assert 2.0 < again <= 3.0, "the others are written then"
    clock.seconds += again
    await pong.turn()
    assert (await pong.status())["actors"]["ready"] == 6

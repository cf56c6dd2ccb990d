"""The reconciler on a real API server: what it makes and counts. Of turns that are cut off: test_kube_killed.py."""

import asyncio
import dataclasses
from typing import Any

import pytest
from rljob.api.learner_status import LearnerStatus
from rljob_operator.core.rules import start_and_drain
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Conflict
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, SECRETS
from rljob_operator.kube.render import names
from rljob_operator.polls.poll import Answer

from tests.cluster.control_plane import ControlPlane, connected
from tests.cluster.reconciling import (
    TWO_ACTORS,
    BreakingClient,
    Clock,
    Kubelet,
    Run,
    bring_up,
    children_of,
    condition,
    conditions,
    started,
    status_of,
    written,
)


async def test_a_job_may_be_made_suspended_and_starts_when_it_is_resumed(
    viewer: Client, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    """As queues and pipelines hand jobs over; its checkpoints are kept where the operator keeps them."""
    await run.begin(viewer, written(namespace, "pong", suspend=True, **TWO_ACTORS))
    assert conditions(await status_of(viewer, namespace, "pong"), "Accepted", "Suspended", "Ready") == [
        ("True", "Valid"),
        ("True", "UserRequested"),
        ("False", "Suspended"),
    ]
    assert await kubelet.pods("pong") == {}
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
    await bring_up(run, viewer, kubelet, "pong")
    assert set(await kubelet.pods("pong")) == {"replay-0", "learner", "actor-0", "actor-1"}
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": True}})
    await run.turn(viewer, "pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Ready") == ("False", "Suspending")


async def test_children_are_made_once_and_a_second_turn_writes_nothing(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    job = await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
    pods = await kubelet.pods("pong")
    assert {member: len(each) for member, each in pods.items()} == dict.fromkeys(
        ("replay-0", "learner", "actor-0", "actor-1"), 1
    )
    children = await children_of(viewer, namespace, "pong")
    for child in children:
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
            job["metadata"]["uid"],
            True,
            True,
        )
    status = await status_of(viewer, namespace, "pong")
    assert (status["actors"]["ready"], condition(status, "LearnerReady")[0]) == (2, "True"), status
    client.reset()
    await run.turn(viewer, "pong")
    assert not client.calls
    again = Run(client, namespace)  # an operator that starts anew finds all as it should be
    await again.settle(viewer, "pong")
    after = await children_of(viewer, namespace, "pong")
    assert {each["metadata"]["uid"] for each in after} == {each["metadata"]["uid"] for each in children}
    assert run.poll.learner(namespace, "pong").url.startswith("http://10.1.0.7:")  # type: ignore[union-attr]
    await kubelet.end(pods["learner"][0], 1)
    await run.turn(viewer, "pong")
    assert run.poll.learner(namespace, "pong") is None, "its address may be another pod's by now"


async def test_actors_come_in_waves_once_the_core_has_places(
    viewer: Client, kubelet: Kubelet, run: Run, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_and_drain, "STARTUP_WAVE", 2)
    await viewer.create(RLJOBS, written(namespace, "pong", actors={"replicas": 5}))
    seen = []
    for _ in range(6):
        await run.settle(viewer, "pong")
        seen.append(len(await kubelet.pods("pong")))
        await kubelet.start("pong")
    assert seen == [3, 5, 7, 7, 7, 7]


async def test_a_scale_down_names_its_victims_before_it_deletes_them(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", actors={"replicas": 3}))
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"actors": {"replicas": 1}}})
    await run.look(viewer)
    client.reset()
    await run.reconciler.reconcile((namespace, "pong"))
    order = [call for call in client.order if call[0] in ("patch", "patch", "delete")]
    assert order[0] == ("patch", "rljobs/status"), "the status says first what goes"
    assert order.index(("patch", "pods")) < order.index(("delete", "pods"))
    victims = {
        member: pods[0]["metadata"]
        for member, pods in (await kubelet.pods("pong")).items()
        if "deletionTimestamp" in pods[0]["metadata"]
    }
    assert len(victims) == 2
    (stays,) = {"actor-0", "actor-1", "actor-2"} - set(victims)
    assert all(names.ASKED_ANNOTATION in about["annotations"] for about in victims.values())
    await run.look(viewer)
    await kubelet.finish_deleted("pong")
    await run.settle(viewer, "pong")
    assert set(await kubelet.pods("pong")) == {"replay-0", "learner", stays}
    assert (await status_of(viewer, namespace, "pong"))["restarts"] == {"counted": 0, "ignored": 0}
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"actors": {"replicas": 2}}})
    await bring_up(run, viewer, kubelet, "pong")
    assert len(await kubelet.pods("pong")) == 4


@pytest.mark.parametrize("rounds", [0, 1, 2])
@pytest.mark.parametrize("foreground", [False, True], ids=["background", "foreground"])
async def test_a_job_may_be_deleted_in_every_state(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str, rounds: int, foreground: bool
) -> None:
    await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
    for _ in range(rounds):
        await run.settle(viewer, "pong")
        await kubelet.start("pong")
    await viewer.delete(RLJOBS, namespace, "pong", propagation="Foreground" if foreground else "Background")
    assert sum(len(pods) for pods in (await kubelet.pods("pong")).values()) == (0, 3, 4)[rounds]
    await run.settle(viewer, "pong")
    pods = [pod for each in (await kubelet.pods("pong")).values() for pod in each]
    if foreground:
        assert all("deletionTimestamp" in pod["metadata"] for pod in pods)
    client.reset()
    await run.turn(viewer, "pong")
    assert not client.writes


async def test_a_name_that_somebody_else_has_refuses_the_job_and_is_left_alone(
    viewer: Client, clock: Clock, run: Run, client: BreakingClient, namespace: str
) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "pong-keys-actors", "namespace": namespace},
        "stringData": {"mine": "1"},
    }
    kept = await viewer.create(SECRETS, theirs)
    await run.begin(viewer, written(namespace, "pong", **TWO_ACTORS))
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("False", "NameConflict"), status
    assert await viewer.get(SECRETS, namespace, "pong-keys-actors") == kept
    again = await run.turn(viewer, "pong")
    assert again is not None
    assert 0 < again <= 30
    clock.seconds += 31.0
    client.reset()
    again = await run.turn(viewer, "pong")
    assert client.calls["get", "secrets"], "it was tried"
    assert not client.calls["patch", "rljobs/status"], "what is said stays, without a moment between"
    assert again is not None
    assert 0 < again <= 30
    assert condition(await status_of(viewer, namespace, "pong"), "Accepted") == ("False", "NameConflict")
    await viewer.delete(SECRETS, namespace, "pong-keys-actors")
    clock.seconds += 31.0
    await run.settle(viewer, "pong")
    assert condition(await status_of(viewer, namespace, "pong"), "Accepted")[0] == "True"
    assert (await viewer.list(PODS, namespace)).items


async def test_of_two_reconcilers_only_the_one_that_leads_writes(
    cluster: ControlPlane, viewer: Client, kubelet: Kubelet, namespace: str
) -> None:
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
        await viewer.create(RLJOBS, written(namespace, "pong", backoffLimit=100, **TWO_ACTORS))
        runs = [Run(first, namespace), Run(second, namespace)]
        for step in range(24):
            if step % 5 == 4:
                leader[0] = 1 - leader[0]
            for run in runs:
                await run.look(viewer)
            results = await asyncio.gather(
                *(run.reconciler.reconcile((namespace, "pong")) for run in runs), return_exceptions=True
            )
            for result in results:
                assert result is None or isinstance(result, float | NotLeading | Conflict), result
            if step % 2:
                await kubelet.start("pong")
            if step == 14:
                await kubelet.end(await kubelet.pod("pong", "learner"), 1)
        pods = await kubelet.pods("pong")
        assert {k: len(v) for k, v in pods.items()} == dict.fromkeys(("replay-0", "learner", "actor-0", "actor-1"), 1)
        assert (await status_of(viewer, namespace, "pong"))["restarts"] == {"counted": 1, "ignored": 0}


async def test_figures_alone_are_written_every_thirty_seconds_at_most(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))

    async def five_minutes(changing: bool) -> int:
        count = 0
        for _ in range(60):
            clock.seconds += 5.0
            if changing:
                clock.updates += 100
            run.poll.answers[namespace, "pong"] = clock.answer()
            client.reset()
            await run.turn(viewer, "pong")
            count += client.calls["patch", "rljobs/status"]
        return count

    await five_minutes(True)  # until all conditions that depend on figures are as they stay
    assert 5 <= await five_minutes(True) <= 11
    await five_minutes(False)
    stored = await status_of(viewer, namespace, "pong")
    assert stored["progress"]["learnerUpdates"] == clock.updates, "the last figures are written, too"


async def test_what_trackers_beside_the_learner_meet_is_a_condition_and_its_end_reaches_them(
    viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    tracking = {"mlflow": {"uri": "http://mlflow:5000"}}
    await started(
        run, viewer, kubelet, written(namespace, "pong", tracking=tracking, successPolicy={"rawFrames": 10_000})
    )

    async def tracked(untracked: dict[str, str] | None) -> list[Any]:
        clock.seconds += 60.0
        said = dataclasses.replace(clock.answer().status or LearnerStatus(), untracked=untracked)
        run.poll.answers[namespace, "pong"] = Answer(said, "")
        await run.turn(viewer, "pong")
        conditions = (await status_of(viewer, namespace, "pong"))["conditions"]
        return [(each["status"], each["message"]) for each in conditions if each["type"] == "Tracked"]

    assert await tracked(None) == []
    assert await tracked({"MLflow": "401: who are you?"}) == [("False", "MLflow: 401: who are you?")]
    assert await tracked({}) == [("True", "")]
    assert run.poll.endings[namespace, "pong"] is None
    clock.updates = 2500
    await tracked({})
    assert run.poll.endings[namespace, "pong"] == "Complete", "before its pod is asked to leave"


async def test_a_wave_whose_status_is_not_written_yet_is_not_doubled_by_the_next_operator(
    viewer: Client,
    client: BreakingClient,
    kubelet: Kubelet,
    clock: Clock,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_and_drain, "STARTUP_WAVE", 2)
    await viewer.create(RLJOBS, written(namespace, "pong", actors={"replicas": 5}))
    run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic, seen_seconds=3.0)
    for _ in range(2):
        await run.settle(viewer, "pong")
        await kubelet.start("pong")
    client.reset()
    await run.turn(viewer, "pong")
    assert client.writes.get(("create", "pods")) == 2, "the second wave"
    assert not client.calls["patch", "rljobs/status"]
    assert (await status_of(viewer, namespace, "pong"))["actors"]["ready"] == 0
    after = Run(client, namespace, now=clock.now, monotonic=clock.monotonic, seen_seconds=3.0)
    for _ in range(3):
        await after.turn(viewer, "pong")
    assert [len(pods) for pods in (await kubelet.pods("pong")).values()] == [1] * 7
    clock.seconds += 3.1
    await after.turn(viewer, "pong")
    assert (await status_of(viewer, namespace, "pong"))["actors"]["ready"] == 3


async def test_actors_that_come_one_by_one_are_told_of_together(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, clock: Clock, namespace: str
) -> None:
    await viewer.create(RLJOBS, written(namespace, "pong", actors={"replicas": 6}))
    run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic, seen_seconds=3.0)
    await run.settle(viewer, "pong")
    await kubelet.start("pong")
    await run.settle(viewer, "pong")
    clock.seconds += 10.0
    writes, again = 0, None
    for actor in range(1, 6):
        await kubelet.start("pong", f"actor-{actor}")
        client.reset()
        again = await run.turn(viewer, "pong")
        writes += client.calls["patch", "rljobs/status"]
        clock.seconds += 0.1
    assert writes == 1, "the first"
    assert again is not None
    assert 2.0 < again <= 3.0, "the others are written then"
    clock.seconds += again
    await run.turn(viewer, "pong")
    assert (await status_of(viewer, namespace, "pong"))["actors"]["ready"] == 6

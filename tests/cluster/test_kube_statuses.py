"""How statuses and events are stored: what differs is sent, and what others have added stays."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from rljob.api.presets import PRESETS
from rljob_operator.kube.apiserver.client import FIELD_MANAGER, Client
from rljob_operator.kube.apiserver.errors import Conflict
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, RLJOBS, Object
from rljob_operator.kube.apiserver.transport import Call
from rljob_operator.kube.reporting.events import EventRecorder, reference

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import TWO_ACTORS, BreakingClient, Clock, OneJob, written

OF_A_QUEUE = {
    "type": "example.com/Queued", "status": "True", "reason": "Waits", "message": "third in line",
    "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
}  # fmt: skip


class Listening(BreakingClient):
    """Keeps what was sent of statuses."""

    sent: list[Any]

    async def _ask(self, call: Call, timeout_seconds: float | None = None) -> Object:
        if call.counted_as == "rljobs/status":
            self.sent.append(call.body["status"])
        return await super()._ask(call, timeout_seconds)


async def say(cluster: ControlPlane, pong: OneJob, status: Object, who: str = "queue") -> None:
    """As another controller does that applies what is its own."""
    about = {"name": "pong", "namespace": pong.namespace}
    document = {"apiVersion": RLJOBS.api_version, "kind": RLJOBS.kind, "metadata": about, "status": status}
    path = f"{RLJOBS.path(*pong.key, 'status')}?fieldManager={who}"
    await asyncio.to_thread(cluster.change, path, document, "application/apply-patch+yaml")


def of_the_queue(status: Object) -> list[Object]:
    return [each for each in status["conditions"] if each["type"] == OF_A_QUEUE["type"]]


async def learns(pong: OneJob, turns: int = 1) -> None:
    """The learner makes updates, and each turn tells of some."""
    for _ in range(turns):
        pong.learns(40.0, 100)
        await pong.turn()


async def test_what_differs_is_sent_and_nothing_else(client: BreakingClient, clock: Clock, pong: OneJob) -> None:
    client.__class__, client.sent = Listening, []  # type: ignore[attr-defined]
    await pong.start(**TWO_ACTORS)
    await learns(pong)
    first, *others = client.sent  # type: ignore[attr-defined]
    assert "environment" in first
    assert others
    assert not any("environment" in each for each in others)
    assert "restarts" not in others[-1], "it has not changed"
    status = await pong.expect(ActorsReady=("True", "PodsReady"))
    found = (status["progress"]["learnerUpdates"], status["algorithm"], status["environment"])
    assert found == (clock.updates, "ApeXDQN", "ALE/Pong-v5")


async def test_another_operator_goes_by_the_configmap_whatever_its_presets_say(
    pong: OneJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def configured() -> str:
        return str((await pong.viewer.get(CONFIG_MAPS, pong.namespace, "pong-job"))["data"]["job.yaml"])

    spec = {"preset": "CartPoleIMPALA", "evaluator": {"enabled": False}}
    await pong.viewer.create(RLJOBS, {**written(*pong.key), "spec": spec})
    await pong.bring_up()
    before, preset = await configured(), PRESETS["CartPoleIMPALA"]
    other = replace(preset, spec={**preset.spec, "algorithm": {"type": "IMPALA", "gamma": 0.5}})
    monkeypatch.setattr("rljob.api.effective.PRESETS", {**PRESETS, "CartPoleIMPALA": other})
    pong.next_operator()
    await pong.settle()
    assert await configured() == before
    await pong.change(backoffLimit=9)
    text = await configured()
    assert ("backoffLimit: 9" in text, "gamma: 0.5" in text) == (True, False), "what may change does, and nothing else"


async def test_a_condition_that_somebody_else_has_added_stays(
    cluster: ControlPlane, clock: Clock, pong: OneJob
) -> None:
    await pong.start(**TWO_ACTORS)
    await say(cluster, pong, {"conditions": [OF_A_QUEUE]})
    await learns(pong, 2)
    await pong.end("learner")
    await pong.settle()
    assert of_the_queue(await pong.expect(LearnerReady=("False",))) == [OF_A_QUEUE]
    pong.next_operator()
    await pong.start_pods()
    await pong.settle()
    clock.seconds += 20.0
    await pong.bring_up()
    assert of_the_queue(await pong.status()) == [OF_A_QUEUE]
    await say(cluster, pong, {})
    await learns(pong, 2)
    status = await pong.status()
    assert not of_the_queue(status), "who has added it takes it back"
    assert status["progress"]["learnerUpdates"] == clock.updates


async def test_what_another_release_has_left_of_a_status_goes(
    cluster: ControlPlane, clock: Clock, pong: OneJob
) -> None:
    """It wrote by server-side apply under the same name, and remembered what this one has no field for."""
    await pong.start(**TWO_ACTORS)
    status = await pong.status()
    before = {**status, "controller": {**status["controller"], "guess": 7}, "restarts": {"counted": 0}}
    await say(cluster, pong, before, f"{FIELD_MANAGER}&force=true")
    pong.next_operator()
    await pong.settle()
    await learns(pong, 2)
    status = await pong.status()
    assert "guess" not in status["controller"]
    assert status["restarts"] == {"counted": 0, "ignored": 0}
    assert status["progress"]["learnerUpdates"] == clock.updates


async def test_a_status_is_not_written_over_what_has_changed_since(
    cluster: ControlPlane, clock: Clock, pong: OneJob
) -> None:
    await pong.start(**TWO_ACTORS)
    await pong.run.look(pong.viewer)
    await say(cluster, pong, {"conditions": [OF_A_QUEUE]})
    pong.learns(31.0, 100)
    with pytest.raises(Conflict):
        await pong.calls(look=False)
    await pong.turn()
    status = await pong.status()
    assert of_the_queue(status) == [OF_A_QUEUE]
    assert status["progress"]["learnerUpdates"] == clock.updates


async def test_events_are_taken(cluster: ControlPlane, viewer: Client, namespace: str) -> None:
    clock, outcomes = Clock(), list[str]()
    job = reference(
        RLJOBS, {"metadata": {"name": "pong", "namespace": namespace, "uid": "u-1", "resourceVersion": "5"}}
    )
    recorder = EventRecorder(viewer, "operator-1", clock.monotonic, outcomes.append)
    for _ in range(3):
        recorder.record(job, "Warning", "Unschedulable", "0/3 nodes: ü", action="Starting")
        await recorder.flush()
        clock.seconds += 200.0
    recorder.record(job, "Normal", "Long", "x" * 5000, action="Starting")
    await recorder.flush()
    assert outcomes == ["sent"] * 3
    shown = cluster.kubectl("events", "-n", namespace, "--for", "rljobs.rljob.dev/pong")
    stored = cluster.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")[1]["items"]
    assert sorted(event["reason"] for event in stored) == ["Long", "Unschedulable", "Unschedulable"]
    listed = json.loads(cluster.kubectl("get", "events", "-n", namespace, "-o", "json").stdout)
    assert {event["involvedObject"]["name"] for event in listed["items"]} == {"pong"}
    assert "Unschedulable" in shown.stdout, shown.stderr

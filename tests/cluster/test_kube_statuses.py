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
from tests.cluster.reconciling import (
    TWO_ACTORS,
    BreakingClient,
    Clock,
    Kubelet,
    Run,
    bring_up,
    condition,
    started,
    status_of,
    written,
)

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


async def say(cluster: ControlPlane, namespace: str, name: str, status: Object, who: str = "queue") -> None:
    """As another controller does that applies what is its own."""
    document = {
        "apiVersion": RLJOBS.api_version, "kind": RLJOBS.kind, "metadata": {"name": name, "namespace": namespace},
        "status": status,
    }  # fmt: skip
    path = f"{RLJOBS.path(namespace, name, 'status')}?fieldManager={who}"
    code, answer = await asyncio.to_thread(cluster.request, "PATCH", path, document, "application/apply-patch+yaml")
    assert code == 200, answer


def of_the_queue(status: Object) -> list[Object]:
    return [each for each in status["conditions"] if each["type"] == OF_A_QUEUE["type"]]


async def learns(run: Run, viewer: Client, clock: Clock, name: str, seconds: float = 31.0) -> None:
    """The learner makes updates for so long, and the next turn tells of it."""
    clock.seconds += seconds
    clock.updates += 100
    run.poll.answers[run.namespace, name] = clock.answer()
    await run.turn(viewer, name)


async def test_what_differs_is_sent_and_nothing_else(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    client.__class__, client.sent = Listening, []  # type: ignore[attr-defined]
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
    await learns(run, viewer, clock, "pong")
    first, *others = client.sent  # type: ignore[attr-defined]
    assert "environment" in first
    assert others
    assert not any("environment" in each for each in others)
    assert "restarts" not in others[-1], "it has not changed"
    status = await status_of(viewer, namespace, "pong")
    assert status["progress"]["learnerUpdates"] == clock.updates
    assert (status["algorithm"], status["environment"]) == ("ApeXDQN", "ALE/Pong-v5")
    assert condition(status, "ActorsReady") == ("True", "PodsReady")


async def test_another_operator_goes_by_the_configmap_whatever_its_presets_say(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def configured() -> str:
        return str((await viewer.get(CONFIG_MAPS, namespace, "pong-job"))["data"]["job.yaml"])

    job = {**written(namespace, "pong"), "spec": {"preset": "CartPoleIMPALA", "evaluator": {"enabled": False}}}
    await started(run, viewer, kubelet, job)
    before, preset = await configured(), PRESETS["CartPoleIMPALA"]
    other = replace(preset, spec={**preset.spec, "algorithm": {"type": "IMPALA", "gamma": 0.5}})
    monkeypatch.setattr("rljob.api.presets.merging.PRESETS", {**PRESETS, "CartPoleIMPALA": other})
    next_one = Run(client, namespace)
    await next_one.settle(viewer, "pong")
    assert await configured() == before
    await next_one.change(viewer, "pong", backoffLimit=9)
    text = await configured()
    assert ("backoffLimit: 9" in text, "gamma: 0.5" in text) == (True, False), "what may change does, and nothing else"


async def test_a_condition_that_somebody_else_has_added_stays(
    cluster: ControlPlane,
    viewer: Client,
    client: BreakingClient,
    kubelet: Kubelet,
    clock: Clock,
    run: Run,
    namespace: str,
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
    await say(cluster, namespace, "pong", {"conditions": [OF_A_QUEUE]})
    await learns(run, viewer, clock, "pong", 40.0)
    await learns(run, viewer, clock, "pong", 40.0)
    await kubelet.end(await kubelet.pod("pong", "learner"), 1)
    await run.settle(viewer, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert of_the_queue(status) == [OF_A_QUEUE]
    assert condition(status, "LearnerReady")[0] == "False"
    again = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
    await kubelet.start("pong")
    await again.settle(viewer, "pong")
    clock.seconds += 20.0
    await bring_up(again, viewer, kubelet, "pong")
    assert of_the_queue(await status_of(viewer, namespace, "pong")) == [OF_A_QUEUE]
    await say(cluster, namespace, "pong", {})
    await learns(again, viewer, clock, "pong", 40.0)
    await learns(again, viewer, clock, "pong", 40.0)
    status = await status_of(viewer, namespace, "pong")
    assert not of_the_queue(status), "who has added it takes it back"
    assert status["progress"]["learnerUpdates"] == clock.updates


async def test_what_another_release_has_left_of_a_status_goes(
    cluster: ControlPlane,
    viewer: Client,
    client: BreakingClient,
    kubelet: Kubelet,
    clock: Clock,
    run: Run,
    namespace: str,
) -> None:
    """It wrote by server-side apply under the same name, and remembered what this one has no field for."""
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
    status = await status_of(viewer, namespace, "pong")
    before = {**status, "controller": {**status["controller"], "guess": 7}, "restarts": {"counted": 0}}
    about = {"name": "pong", "namespace": namespace}
    applied = {"apiVersion": RLJOBS.api_version, "kind": RLJOBS.kind, "metadata": about, "status": before}
    path = f"{RLJOBS.path(namespace, 'pong', 'status')}?fieldManager={FIELD_MANAGER}&force=true"
    cluster.change(path, applied, "application/apply-patch+yaml")
    after = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
    await after.settle(viewer, "pong")
    await learns(after, viewer, clock, "pong")
    await learns(after, viewer, clock, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert "guess" not in status["controller"]
    assert status["restarts"] == {"counted": 0, "ignored": 0}
    assert status["progress"]["learnerUpdates"] == clock.updates


async def test_a_status_is_not_written_over_what_has_changed_since(
    cluster: ControlPlane, viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
    await run.look(viewer)
    await say(cluster, namespace, "pong", {"conditions": [OF_A_QUEUE]})
    clock.seconds += 31.0
    clock.updates += 100
    run.poll.answers[namespace, "pong"] = clock.answer()
    with pytest.raises(Conflict):
        await run.reconciler.reconcile((namespace, "pong"))
    await run.turn(viewer, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert of_the_queue(status) == [OF_A_QUEUE]
    assert status["progress"]["learnerUpdates"] == clock.updates


async def test_an_event_and_its_series_are_taken(cluster: ControlPlane, viewer: Client, namespace: str) -> None:
    clock, outcomes = Clock(), list[str]()
    job = reference(
        RLJOBS, {"metadata": {"name": "pong", "namespace": namespace, "uid": "u-1", "resourceVersion": "5"}}
    )
    recorder = EventRecorder(viewer, "operator-1", clock.monotonic, outcomes.append)
    for _ in range(3):
        recorder.record(job, "Warning", "Unschedulable", "0/3 nodes: ü", action="Starting")
        await recorder.flush()
        clock.seconds += 60.0
    recorder.record(job, "Normal", "Long", "x" * 5000, action="Starting")
    await recorder.flush()
    assert outcomes == ["sent"] * 4
    shown = cluster.kubectl("events", "-n", namespace, "--for", "rljobs.rljob.dev/pong")
    stored = cluster.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")[1]["items"]
    assert next(event for event in stored if event["reason"] == "Unschedulable")["series"]["count"] == 3
    assert len(stored) == 2
    listed = json.loads(cluster.kubectl("get", "events", "-n", namespace, "-o", "json").stdout)
    assert {event["involvedObject"]["name"] for event in listed["items"]} == {"pong"}
    assert "Unschedulable" in shown.stdout, shown.stderr

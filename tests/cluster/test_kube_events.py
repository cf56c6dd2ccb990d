"""Our events as a real API server takes them and `kubectl` shows them."""

from __future__ import annotations

import json

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import RLJOBS
from rljob_operator.kube.reporting.events import EventRecorder, reference

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import Clock


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

"""A cluster's job as its user sees it: out of the stored object, with what speaks against an operator being there."""

from typing import Any

import pytest
from rljob.api.learner_status import LearnerStatus
from rljob.api.status_model import rfc3339
from rljob_operator.kube.view.job_view import live, metrics_port, view

from tests.unit.api.bad_manifests import BASE, document
from tests.unit.operator.kube.sample_pods import container, running_pod

NOW = 1_800_000_000.0


def job(changed: float = 1000.0, generation: int = 2, **status: Any) -> dict[str, Any]:
    entries = [
        {"manager": "kubectl", "time": rfc3339(NOW - 5000)},
        {"manager": "rljob", "time": rfc3339(NOW - changed)},
        {"manager": "rljob-operator", "subresource": "status", "time": rfc3339(NOW - 1)},
    ]
    about = {"name": "pong", "namespace": "team", "generation": generation, "creationTimestamp": rfc3339(NOW - 5000)}
    return {**document(BASE), "metadata": {**about, "managedFields": entries}, "status": status}


def running(**progress: Any) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "reason": "Running", "message": "", "lastTransitionTime": rfc3339(NOW)}
    return {
        "observedGeneration": 2,
        "startTime": rfc3339(NOW - 4000),
        "conditions": [ready],
        "progress": {"learnerUpdates": 70, "policyLagUpdates": 8, "queueFillPercent": 40, **progress},
        "controller": {"activeSince": rfc3339(NOW - 4000), "spentActiveSeconds": 0.0},
    }


def test_what_the_status_knows_stands_for_a_learner_that_was_not_asked() -> None:
    seen = view(job(**running()), NOW)
    assert (seen.place, seen.name, seen.state, seen.attended) == ("team/pong", "pong", "Running", True)
    assert (seen.figures, seen.queue_fill_percent) == (LearnerStatus(updates=70, policy_lag_updates_p95=8), 40)
    assert "managedFields" not in seen.document["metadata"]
    servers = {"inference-0": {"batch_mean": 3.0}}
    asked = view(job(**running()), NOW, {"learner": {"updates": 90}, **servers})
    assert (asked.figures, asked.servers, asked.queue_fill_percent) == (LearnerStatus(updates=90), servers, None)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (job(**running(lastUpdateTime=rfc3339(NOW - 20))), ""),
        (job(**running(lastUpdateTime=rfc3339(NOW - 200))), "the status is 3m old"),
        (job(changed=5.0, generation=3, **running()), ""),
        (job(changed=40.0, generation=3, **running()), "no operator has looked at its newest spec, which is 40s old"),
        (job(changed=40.0), "no operator has looked"),
    ],
)
def test_an_operator_that_is_not_there_shows(found: dict[str, Any], words: str) -> None:
    problem = view(found, NOW).problem
    assert (problem.startswith(words), bool(problem)) == (True, bool(words))


def test_nobody_is_missed_by_a_job_that_is_over_or_leaves() -> None:
    done = {
        "type": "Complete",
        "status": "True",
        "reason": "Complete",
        "message": "",
        "lastTransitionTime": rfc3339(NOW),
    }
    assert view(job(changed=40.0, generation=3, **{**running(), "conditions": [done]}), NOW).problem == ""
    leaving = job(changed=40.0)
    leaving["metadata"]["deletionTimestamp"] = rfc3339(NOW)
    assert view(leaving, NOW).problem == "it is being deleted"


def test_a_job_of_somebody_elses_controller_says_so() -> None:
    found = job()
    found["spec"]["managedBy"] = "example.com/other"
    assert "spec.managedBy is example.com/other" in view(found, NOW).problem


def test_a_pod_is_asked_where_its_worker_runs_and_listens() -> None:
    pod = running_pod(3)
    assert live([pod]) == {}, "it has no worker"
    pod["status"]["containerStatuses"] = [container("worker", "2026-11-23T11:00:00Z")]
    assert (set(live([pod])), metrics_port(pod)) == ({"actor-3"}, None)
    ports = [{"name": "ingest", "containerPort": 1}, {"name": "metrics", "containerPort": 9191}]
    pod["spec"]["containers"] = [{"name": "sidecar", "ports": ports}, {"name": "worker", "ports": ports}]
    assert metrics_port(pod) == 9191
    ended = {"terminated": {"exitCode": 0}}
    pod["status"]["containerStatuses"] = [container("worker", "2026-11-23T11:00:00Z", state=ended)]
    assert live([pod]) == {}

"""The series of each job on the operator's page: there with its first status, and gone with the job."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rljob.api.conditions import CATALOGUE
from rljob.api.status import RLJobStatus
from rljob_operator.kube.reporting.job_figures import CONDITIONS, JobFigures
from rljob_operator.kube.watch.kopf_watch import kept

JOB = ("team-a", "pong")
LABELS = ("namespace", "rljob", "condition", "reason", "state", "kind")


def document(status: RLJobStatus | None) -> dict[str, Any]:
    found: dict[str, Any] = {"metadata": {"namespace": JOB[0], "name": JOB[1]}}
    return kept(found if status is None else {**found, "status": status.document()})


def scraped(*jobs: dict[str, Any]) -> dict[str, dict[tuple[str, ...], float]]:
    registry = CollectorRegistry()
    registry.register(JobFigures(lambda: jobs))
    return {
        family.name: {
            tuple(sample.labels[name] for name in LABELS if name in sample.labels): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(generate_latest(registry).decode())
    }


def condition(type: str, status: str, reason: str) -> dict[str, Any]:
    return {"type": type, "status": status, "reason": reason, "lastTransitionTime": "2026-11-23T15:00:00Z"}


def test_a_status_becomes_series() -> None:
    status = RLJobStatus.model_validate(
        {
            "conditions": [
                condition("Ready", "False", "Starting"),
                condition("Progressing", "Unknown", "WarmingUp"),
                condition("CheckpointValid", "True", "Verified"),
                condition("ScalingActive", "True", "ValidMetricFound"),
            ],
            "autoscaling": {"desiredReplicas": 4},
            "actors": {"replicas": 4, "ready": 3, "draining": 1},
            "restarts": {"counted": 2, "ignored": 7},
        }
    )
    families = scraped(document(status))
    assert families["rljob_operator_job_condition"] == {
        (*JOB, "Ready", "Starting"): 0.0,
        (*JOB, "CheckpointValid", "Verified"): 1.0,
    }
    assert families["rljob_operator_job_actors"] == {
        (*JOB, "wanted"): 4.0,
        (*JOB, "ready"): 3.0,
        (*JOB, "leaving"): 1.0,
    }
    assert families["rljob_operator_job_restarts"] == {(*JOB, "counted"): 2.0, (*JOB, "ignored"): 7.0}


@pytest.mark.parametrize("job", [None, document(None), {**document(None), "status": {}}], ids=["none", "new", "empty"])
def test_what_is_not_known_is_left_out(job: dict[str, Any] | None) -> None:
    assert not any(scraped(*([job] if job else [])).values())


def test_every_condition_that_is_shown_exists() -> None:
    assert set(CONDITIONS) <= {entry.type for entry in CATALOGUE}

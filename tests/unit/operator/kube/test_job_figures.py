"""Series on the operator's page: those of each job, gone with it, and the number of actors that other autoscalers may ask for."""

from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rljob.api.conditions import CATALOGUE, ConditionType
from rljob.api.status import AutoscalingStatus, Condition, RLJobStatus
from rljob_operator.kube.job.observe import recommendation
from rljob_operator.kube.reporting.metrics import CONDITIONS, JobFigures, OperatorMetrics
from rljob_operator.kube.watch.kopf_watch import kept

from tests.support.paths import EXAMPLES

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
    expected = {
        "condition": {(*JOB, "Ready", "Starting"): 0.0, (*JOB, "CheckpointValid", "Verified"): 1.0},
        "actors": {(*JOB, "wanted"): 4.0, (*JOB, "ready"): 3.0, (*JOB, "leaving"): 1.0},
        "restarts": {(*JOB, "counted"): 2.0, (*JOB, "ignored"): 7.0},
    }
    assert {name: families[f"rljob_operator_job_{name}"] for name in expected} == expected


@pytest.mark.parametrize("job", [None, document(None), {**document(None), "status": {}}], ids=["none", "new", "empty"])
def test_what_is_not_known_is_left_out(job: dict[str, Any] | None) -> None:
    assert not any(scraped(*([job] if job else [])).values())


def test_every_condition_that_is_shown_exists() -> None:
    assert set(CONDITIONS) <= {entry.type for entry in CATALOGUE}


METRIC = "rljob_operator_recommended_actors"
FOLDER = EXAMPLES / "autoscaling"
TARGET = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "name": "pong"}


def status(scaling: str, reason: str) -> RLJobStatus:
    about = {"type": ConditionType.SCALING_ACTIVE, "status": scaling, "reason": reason, "message": ""}
    condition = Condition.model_construct(**about, observed_generation=1, last_transition_time=0.0)
    autoscaling = AutoscalingStatus.model_construct(desired_replicas=3, recommended_replicas=7)
    return RLJobStatus(conditions=[condition], autoscaling=autoscaling)


@pytest.mark.parametrize(
    ("seen", "recommended"),
    [
        (RLJobStatus(), None),
        (status("True", "ValidMetricFound"), 7),
        (status("False", "StaleMetrics"), 7),
        (status("False", "ScalingDisabled"), None),
    ],
)
def test_a_job_that_runs_and_may_be_scaled_has_a_recommendation(seen: RLJobStatus, recommended: int | None) -> None:
    assert recommendation(seen) == recommended


def test_it_is_exported_for_each_job_and_gone_when_there_is_none() -> None:
    metrics = OperatorMetrics()

    def exported() -> list[str]:
        lines = generate_latest(metrics.registry).decode().splitlines()
        return [line for line in lines if line.startswith(f"{METRIC}{{")]

    metrics.recommended("team", "pong", None)
    assert exported() == []
    metrics.recommended("team", "pong", 3)
    metrics.recommended("team", "breakout", 5)
    metrics.recommended("team", "pong", 7)
    assert sorted(exported()) == [
        f'{METRIC}{{namespace="team",rljob="breakout"}} 5.0',
        f'{METRIC}{{namespace="team",rljob="pong"}} 7.0',
    ]
    metrics.recommended("team", "pong", None)
    assert exported() == [f'{METRIC}{{namespace="team",rljob="breakout"}} 5.0']


def scaling(name: str) -> dict[str, Any]:
    """The spec of an example, which is about the job of all of them."""
    spec: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())["spec"]
    assert spec["scaleTargetRef"] == TARGET
    return spec


def test_the_hpa_of_the_examples_asks_for_one_actor_for_each_that_is_recommended() -> None:
    (metric,) = scaling("hpa.yaml")["metrics"]
    assert metric["external"] == {
        "metric": {"name": METRIC, "selector": {"matchLabels": {"rljob": "pong"}}},
        "target": {"type": "AverageValue", "averageValue": "1"},
    }


def test_kedas_example_asks_for_the_number_of_this_job() -> None:
    """That KEDA follows it, tests/e2e/test_autoscaling.py sees."""
    (trigger,) = scaling("keda.yaml")["triggers"]
    assert trigger["metadata"]["valueLocation"] == f'{METRIC}{{namespace="default",rljob="pong"}}'

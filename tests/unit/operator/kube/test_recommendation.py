"""The number of actors that other autoscalers may ask for: when it is exported, as what, and that the examples ask for it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from rljob.api.conditions import ConditionType
from rljob.api.status import AutoscalingStatus, Condition, RLJobStatus
from rljob_operator.kube.job.observe import recommendation
from rljob_operator.kube.reporting.metrics import OperatorMetrics

from tests.support.paths import EXAMPLES

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


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return found


def test_the_hpa_of_the_examples_asks_for_one_actor_for_each_that_is_recommended() -> None:
    spec = example("hpa.yaml")["spec"]
    (metric,) = spec["metrics"]
    assert spec["scaleTargetRef"] == TARGET
    assert metric["external"] == {
        "metric": {"name": METRIC, "selector": {"matchLabels": {"rljob": "pong"}}},
        "target": {"type": "AverageValue", "averageValue": "1"},
    }


def test_kedas_example_asks_prometheus_for_the_number_of_this_job() -> None:
    """That the ScaledObject has these fields, KEDA's own CRD says in tests/cluster/test_keda_example.py."""
    spec = example("keda.yaml")["spec"]
    assert spec["scaleTargetRef"] == TARGET
    (trigger,) = spec["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", "AverageValue")
    metadata = trigger["metadata"]
    assert set(metadata) == {"serverAddress", "query", "threshold", "ignoreNullValues"}
    assert metadata["threshold"] == "1"
    labels = re.search(rf"{METRIC}\{{(.*)\}}", metadata["query"])
    assert set(re.findall(r"(\w+)=", labels[1])) == {"namespace", "rljob"}

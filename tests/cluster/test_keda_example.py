"""The example of a ScaledObject given to a real API server that has KEDA's CRDs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.jobs import STRICT, kept
from tests.support.paths import EXAMPLES
from tests.support.provided_crds import KEDA

OBJECTS = "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects"
TRY = f"{OBJECTS}?{STRICT}&dryRun=All"


@pytest.fixture(scope="module")
def with_keda(cluster: ControlPlane) -> ControlPlane:
    """An API server that knows its kinds."""
    cluster.apply(*KEDA.files())
    cluster.wait_until("serving ScaledObjects", lambda: cluster.request("GET", OBJECTS)[0] == 200)
    return cluster


@pytest.fixture
def example() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "autoscaling" / "keda.yaml").read_text())
    return found


def test_it_is_admitted_and_nothing_of_it_is_dropped(with_keda: ControlPlane, example: dict[str, Any]) -> None:
    answer = with_keda.create(TRY, example)
    assert kept(example["spec"], answer["spec"])


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("spec", "triggers", 0, "metadata", "threshold"), 1),
        (("spec", "triggers", 0, "metricsType"), "AverageValue"),
        (("spec", "pollingInterval"), "15s"),
        (("spec", "advanced", "horizontalPodAutoscalerConfig", "behaviour"), {}),
        (("spec", "scaleTargetRef", "name"), None),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_refused(
    with_keda: ControlPlane, example: dict[str, Any], where: tuple[Any, ...], value: Any
) -> None:
    """So that the test above can fail: the kind has a schema."""
    wrong = copy.deepcopy(example)
    place: Any = wrong
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    code, answer = with_keda.request("POST", TRY, wrong)
    assert code in (400, 422), answer

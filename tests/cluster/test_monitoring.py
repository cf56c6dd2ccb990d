"""The chart's monitors and alerts, and the example of a ScaledObject, given to a real API server that has the kinds' CRDs."""

import copy
from typing import Any

import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.jobs import STRICT, kept
from tests.support.chart import Chart
from tests.support.paths import EXAMPLES
from tests.support.provided_crds import KEDA, MONITORING

KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
GROUP = "/apis/monitoring.coreos.com/v1"
RELABEL = [{"sourceLabels": ["a"], "regex": "b", "action": "drop"}]
SCRAPED = {"enabled": True, "labels": {"release": "x"}, "interval": "30s", "scrapeTimeout": "10s"}
EVERYTHING = {
    "serviceMonitor": {**SCRAPED, "relabelings": RELABEL, "metricRelabelings": RELABEL},
    "podMonitor": {**SCRAPED, "relabelings": RELABEL, "metricRelabelings": RELABEL},
    "prometheusRule": {"enabled": True, "labels": {"release": "x"}, "ruleLabels": {"team": "rl"}},
    "dashboards": {"enabled": True},
}
PLAIN = {part: {"enabled": True} for part in EVERYTHING}
OBJECTS = "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects"
TRY = f"{OBJECTS}?{STRICT}&dryRun=All"


@pytest.fixture(scope="module")
def kinds(cluster: ControlPlane) -> ControlPlane:
    """An API server that knows them."""
    cluster.apply(*MONITORING.files())
    cluster.wait_until("serving monitors", lambda: all(_served(cluster, kind) for kind in KINDS))
    return cluster


def _served(cluster: ControlPlane, kind: str) -> bool:
    return cluster.request("GET", f"{GROUP}/{kind.lower()}s")[0] == 200


@pytest.mark.parametrize("values", [PLAIN, EVERYTHING], ids=["plain", "everything"])
@pytest.mark.parametrize("watched", [[], ["team-a", "team-b"]], ids=["everywhere", "two namespaces"])
def test_they_are_admitted_and_nothing_is_dropped(
    kinds: ControlPlane, chart: Chart, values: dict[str, Any], watched: list[str]
) -> None:
    objects = chart.render({"monitoring": values, "watchNamespaces": watched, "namespaceOverride": "default"})
    found = [each for each in objects if each["kind"] in KINDS]
    assert {each["kind"] for each in found} == set(KINDS)
    for document in found:
        path = f"{GROUP}/namespaces/default/{document['kind'].lower()}s?{STRICT}&dryRun=All"
        answer = kinds.create(path, document)
        assert kept(document["spec"], answer["spec"])


def test_what_is_wrong_is_refused(kinds: ControlPlane, chart: Chart) -> None:
    """So that the test above can fail: the kinds have schemas."""
    (rule,) = (
        each
        for each in chart.render({"monitoring": PLAIN, "namespaceOverride": "default"})
        if each["kind"] == "PrometheusRule"
    )
    rule["spec"]["groups"][0]["rules"][0]["for"] = "a while"
    path = f"{GROUP}/namespaces/default/prometheusrules?{STRICT}&dryRun=All"
    code, answer = kinds.request("POST", path, rule)
    assert code == 422, answer


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
def test_a_wrong_scaled_object_is_refused(
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

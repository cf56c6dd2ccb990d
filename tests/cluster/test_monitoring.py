"""The chart's monitors and alerts given to a real API server that has the Prometheus operator's CRDs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.jobs import STRICT, kept
from tests.support.chart import Chart
from tests.support.provided_crds import MONITORING

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

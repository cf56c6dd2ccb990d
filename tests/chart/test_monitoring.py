"""The chart's monitors, alerts and dashboards: nothing of them by default, and each value does what it says."""

from typing import Any

import pytest

from tests.support.chart import NAMESPACE, RELEASE, Chart, HelmRefused, at, only
from tests.support.dashboards import FILES, alerts

NAME = f"{RELEASE}-rljob-operator"
KINDS = {"serviceMonitor": "ServiceMonitor", "podMonitor": "PodMonitor", "prometheusRule": "PrometheusRule"}
PARTS = (*KINDS, "dashboards")


def on(*parts: str, **more: dict[str, Any]) -> dict[str, Any]:
    return {"monitoring": {part: {"enabled": True, **more.get(part, {})} for part in parts}}


def kinds(chart: Chart, values: dict[str, Any]) -> list[str]:
    return [each["kind"] for each in chart.render(values)]


def dashboards(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in objects if any(name.endswith(".json") for name in each.get("data", {}))]


def test_nothing_of_it_is_there_by_default(chart: Chart) -> None:
    found = chart.render()
    assert not {each["kind"] for each in found} & set(KINDS.values())
    assert dashboards(found) == []


@pytest.mark.parametrize("part", PARTS)
def test_each_part_alone(chart: Chart, part: str) -> None:
    found = chart.render(on(part))
    assert ({each["kind"] for each in found} & set(KINDS.values())) == ({KINDS[part]} if part in KINDS else set())
    assert len(dashboards(found)) == (len(FILES) if part == "dashboards" else 0)


@pytest.mark.parametrize("part", KINDS)
def test_labels_by_which_a_prometheus_selects(chart: Chart, part: str) -> None:
    found = only(chart.render(on(part, **{part: {"labels": {"release": "prometheus"}}})), KINDS[part])
    assert found["metadata"]["labels"]["release"] == "prometheus"
    assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == RELEASE
    assert found["metadata"]["namespace"] == NAMESPACE


@pytest.mark.parametrize(("part", "place"), [("serviceMonitor", "endpoints"), ("podMonitor", "podMetricsEndpoints")])
@pytest.mark.parametrize(
    ("value", "given"),
    [
        ("interval", "1m"),
        ("scrapeTimeout", "5s"),
        ("metricRelabelings", [{"sourceLabels": ["stage"], "action": "labeldrop"}]),
    ],
)
def test_how_it_is_scraped(chart: Chart, part: str, place: str, value: str, given: Any) -> None:
    (endpoint,) = only(chart.render(on(part, **{part: {value: given}})), KINDS[part])["spec"][place]
    assert (endpoint[value], endpoint["port"]) == (given, "metrics")


@pytest.mark.parametrize(("part", "place"), [("serviceMonitor", "endpoints"), ("podMonitor", "podMetricsEndpoints")])
def test_more_relabelings_follow_the_charts_own(chart: Chart, part: str, place: str) -> None:
    more = {"targetLabel": "cluster", "replacement": "blue"}
    (plain,) = only(chart.render(on(part)), KINDS[part])["spec"][place]
    (changed,) = only(chart.render(on(part, **{part: {"relabelings": [more]}})), KINDS[part])["spec"][place]
    assert changed["relabelings"] == [*plain.get("relabelings", []), more]


def test_the_operator_is_found_by_its_service(chart: Chart) -> None:
    found = chart.render(on("serviceMonitor"))
    monitor, service = only(found, "ServiceMonitor"), only(found, "Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [service["metadata"]["namespace"]]}
    assert [port["name"] for port in service["spec"]["ports"]] == [monitor["spec"]["endpoints"][0]["port"]]


def test_jobs_are_looked_for_where_they_are_looked_after(chart: Chart) -> None:
    assert only(chart.render(on("podMonitor")), "PodMonitor")["spec"]["namespaceSelector"] == {"any": True}
    some = only(chart.render({**on("podMonitor"), "watchNamespaces": ["a", "b"]}), "PodMonitor")
    assert some["spec"]["namespaceSelector"] == {"matchNames": ["a", "b"]}


def test_alerts_are_those_of_the_file(chart: Chart) -> None:
    groups = only(chart.render({**on("prometheusRule"), "namespaceOverride": "rljob-system"}), "PrometheusRule")
    rules = [rule for group in groups["spec"]["groups"] for rule in group["rules"]]
    said = alerts()
    assert all(rule["annotations"].pop("runbook_url") for rule in said.values()), "a link to nowhere is worse than none"
    assert rules == list(said.values())


def test_alerts_left_out_relabelled_and_explained_elsewhere(chart: Chart) -> None:
    names = list(alerts())
    values = {
        "disabled": [name for name in names if "Operator" in name or "Reconcile" in name],
        "ruleLabels": {"severity": "page", "team": "rl"},
        "runbookUrl": "https://wiki.example.com/rljob",
    }
    found = only(chart.render(on("prometheusRule", prometheusRule=values)), "PrometheusRule")
    assert [group["name"] for group in found["spec"]["groups"]] == ["rljob.jobs"], "no group without a rule"
    rules = found["spec"]["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules] == [name for name in names if name not in values["disabled"]]
    for rule in rules:
        assert rule["labels"] == {"severity": "page", "team": "rl"}
        assert rule["annotations"]["runbook_url"] == f"https://wiki.example.com/rljob#{rule['alert'].lower()}"


def test_dashboards_go_where_the_sidecar_looks(chart: Chart) -> None:
    values = {"namespace": "grafana", "labels": {"grafana_dashboard": None, "my": "label"}, "annotations": {"a": "b"}}
    found = dashboards(chart.render(on("dashboards", dashboards=values)))
    assert {each["metadata"]["name"] for each in found} == {f"{NAME}-{file.stem}" for file in FILES}
    for each in found:
        assert each["metadata"]["namespace"] == "grafana"
        assert at(each, "metadata.labels.my") == "label"
        assert "grafana_dashboard" not in each["metadata"]["labels"]
        assert each["metadata"]["annotations"] == {"a": "b"}
    plain = dashboards(chart.render(on("dashboards")))
    assert {each["metadata"]["labels"]["grafana_dashboard"] for each in plain} == {"1"}
    assert {name: text for each in plain for name, text in each["data"].items()} == {
        f"rljob-{name}": text for name, text in {file.name: file.read_text() for file in FILES}.items()
    }


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"podMonitors": {}}, "/monitoring"),
        ({"podMonitor": {"enable": True}}, "/monitoring/podMonitor"),
        ({"serviceMonitor": {"interval": "often"}}, "/monitoring/serviceMonitor/interval"),
        ({"podMonitor": {"scrapeTimeout": "10"}}, "/monitoring/podMonitor/scrapeTimeout"),
        ({"prometheusRule": {"disabled": "RLJobStuck"}}, "/monitoring/prometheusRule/disabled"),
        ({"dashboards": {"labels": {"grafana_dashboard": 1}}}, "/monitoring/dashboards/labels/grafana_dashboard"),
    ],
)
def test_wrong_values_are_refused_with_their_place(chart: Chart, values: dict[str, Any], place: str) -> None:
    with pytest.raises(HelmRefused) as refused:
        chart.render({"monitoring": values})
    assert refused.value.names(place)


def test_an_alert_that_is_not_there_cannot_be_left_out(chart: Chart) -> None:
    with pytest.raises(HelmRefused, match="there is no alert RLJobStuk; there are RLJobLearnerStarved, "):
        chart.render(on("prometheusRule", prometheusRule={"disabled": ["RLJobStuk"]}))


@pytest.mark.parametrize("part", KINDS)
def test_a_cluster_without_the_kind_is_told_by_name(chart: Chart, part: str) -> None:
    """On a cluster Helm knows every kind; here it is told of two."""
    with pytest.raises(HelmRefused) as refused:
        chart.render(on(part), "--api-versions=v1/Pod")
    kind = KINDS[part]
    assert f"monitoring.{part}.enabled is true, but this cluster does not know the kind {kind}" in str(refused.value)
    assert chart.render(on(part), "--api-versions=v1/Pod", f"--api-versions=monitoring.coreos.com/v1/{kind}")

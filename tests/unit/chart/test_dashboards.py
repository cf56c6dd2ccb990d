"""The dashboards ask for metrics that are exported, under labels that are there, and each panel is explained on the page."""

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from rljob.telemetry.catalogue import PROCESS, ROLES
from rljob_operator.kube.reporting.job_figures import JobFigures
from rljob_operator.kube.reporting.metrics import OperatorMetrics

from tests.support.alert_rules import alerts
from tests.support.dashboards import FILES, filled, panels, read
from tests.support.paths import ROOT
from tests.unit.test_links import anchors

PAGE = ROOT / "docs" / "monitoring.md"
VARIABLES = {"namespace": "a", "rljob": "b", "__rate_interval": "1m"}
NAME = re.compile(r"\b(rljob_\w+|process_\w+|up)\b")


def names_of(registry: CollectorRegistry) -> set[str]:
    """The names of all series that a registry can have, as they are asked for."""
    suffixes = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}
    return {family.name + suffix for family in registry.collect() for suffix in suffixes.get(family.type, ("",))}


def operator_metrics() -> OperatorMetrics:
    metrics = OperatorMetrics()
    metrics.registry.register(JobFigures(lambda: ()))
    return metrics


@pytest.fixture(scope="module")
def exported() -> set[str]:
    roles = {metric.full_name for metrics in (*ROLES.values(), PROCESS) for metric in metrics}
    return roles | names_of(operator_metrics().registry) | {"up"}


def asked_by_dashboards() -> list[tuple[str, str]]:
    return [(panel.title, expression) for file in FILES for panel in panels(file) for expression, _ in panel.asks]


ASKED = [*asked_by_dashboards(), *((name, rule["expr"]) for name, rule in alerts().items())]


@pytest.mark.parametrize(("title", "expression"), ASKED)
def test_a_panel_or_an_alert_asks_for_what_is_exported(exported: set[str], title: str, expression: str) -> None:
    assert set() < set(NAME.findall(filled(expression, VARIABLES))) <= exported


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_dashboard_can_be_loaded(file: Path) -> None:
    document = read(file)
    assert all(document[name] for name in ("uid", "title"))
    numbers = [panel["id"] for panel in document["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert {each["datasource"]["uid"] for each in document["panels"]} == {"${datasource}"}
    assert {
        name for panel in panels(file) for expression, _ in panel.asks for name in re.findall(r"\$(\w+)", expression)
    } - {"__rate_interval"} <= {each["name"] for each in document["templating"]["list"]}
    places = [panel["gridPos"] for panel in document["panels"]]
    assert not any(_overlap(one, other) for i, one in enumerate(places) for other in places[:i])


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
    return across and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]


def test_the_page_explains_every_panel() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    assert {(panel.title, panel.description) for file in FILES for panel in panels(file)} <= set(rows)


def test_the_page_lists_every_metric_of_the_operator() -> None:
    listed = set(re.findall(r"^\| `(rljob_operator_\w+)` \|", PAGE.read_text(), re.MULTILINE))
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name in names_of(operator_metrics().registry)}
    assert listed == {name for name in ours if name.startswith("rljob_")}


def test_the_page_says_what_to_do_about_every_alert() -> None:
    assert {name.lower() for name in alerts()} <= anchors(PAGE)

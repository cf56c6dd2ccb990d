"""The chart's Grafana dashboards: their panels and what these ask Prometheus.

The chart's alerts as Prometheus reads them: the template's two words replaced as it replaces them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import ROOT

CHART = ROOT / "charts" / "rljob-operator"
FOLDER = CHART / "dashboards"
FILES = sorted(FOLDER.glob("*.json"))


@dataclass(frozen=True)
class Panel:
    """``asks``: (expression, words of its legend) of each query, with the dashboard's variables in it."""

    title: str
    description: str
    unit: str
    kind: str
    asks: tuple[tuple[str, str], ...]
    stacked: bool = False


def read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def panels(file: Path) -> Iterator[Panel]:
    for panel in read(file)["panels"]:
        defaults = panel["fieldConfig"]["defaults"]
        asks = tuple((target["expr"], target["legendFormat"]) for target in panel["targets"])
        stacked = "stacking" in defaults.get("custom", {})
        yield Panel(panel["title"], panel["description"], defaults["unit"], panel["type"], asks, stacked)


def filled(expression: str, variables: Mapping[str, str]) -> str:
    """As Grafana would send it: each ``$name`` replaced, the longest names first."""
    for name in sorted(variables, key=len, reverse=True):
        expression = expression.replace(f"${name}", variables[name])
    assert "$" not in expression, expression
    return expression


RULES = CHART / "rules" / "rljob.yaml"
NAMESPACE = "rljob-system"
RUNBOOK = "https://docs.example.com/monitoring"


def rules_text() -> str:
    """The rules of an operator in the namespace rljob-system, with a page of runbooks."""
    return RULES.read_text().replace("@NAMESPACE@", NAMESPACE).replace("@RUNBOOK@", RUNBOOK)


def alerts() -> dict[str, dict[str, Any]]:
    """Name of an alert -> its rule."""
    return {rule["alert"]: rule for group in yaml.safe_load(rules_text())["groups"] for rule in group["rules"]}

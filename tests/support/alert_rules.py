"""The chart's alerts as Prometheus reads them: the template's two words replaced as it replaces them."""

from typing import Any

import yaml

from tests.support.paths import ROOT

CHART = ROOT / "charts" / "rljob-operator"
RULES = CHART / "rules" / "rljob.yaml"
NAMESPACE = "rljob-system"
RUNBOOK = "https://docs.example.com/monitoring"


def rules_text() -> str:
    """The rules of an operator in the namespace rljob-system, with a page of runbooks."""
    return RULES.read_text().replace("@NAMESPACE@", NAMESPACE).replace("@RUNBOOK@", RUNBOOK)


def alerts() -> dict[str, dict[str, Any]]:
    """Name of an alert -> its rule."""
    return {rule["alert"]: rule for group in yaml.safe_load(rules_text())["groups"] for rule in group["rules"]}

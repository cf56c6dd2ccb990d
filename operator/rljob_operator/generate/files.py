"""Which files of the repository are made from the controller's code, and which from the chart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rljob_operator.generate.configuration_page import configuration_page
from rljob_operator.generate.programs import chart_readme, install_manifest
from rljob_operator.generate.rights_page import rights_page
from rljob_operator.generate.rules import rules_template
from rljob_operator.generate.values_schema import with_configuration

CHART = Path("charts/rljob-operator")
RULES_FILE = CHART / "templates" / "_rules.tpl"
SCHEMA_FILE = CHART / "values.schema.json"
CONFIGURATION_PAGE = Path("docs/operator-configuration.md")
RIGHTS_PAGE = Path("docs/operator-rights.md")
INSTALL_FILE = Path("manifests/install.yaml")
README_FILE = CHART / "README.md"


def generated(root: Path) -> dict[Path, str]:
    """Every file that this code alone makes, by its path below ``root``, the repository."""
    return {
        RULES_FILE: rules_template(),
        SCHEMA_FILE: with_configuration((root / SCHEMA_FILE).read_text()),
        CONFIGURATION_PAGE: configuration_page(),
        RIGHTS_PAGE: rights_page(),
    }


OF_THE_CHART: dict[Path, Callable[[Path], str]] = {INSTALL_FILE: install_manifest, README_FILE: chart_readme}
"""Files that other programs make of the chart, of which they are given the folder. They raise `MissingProgram`."""

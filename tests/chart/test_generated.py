"""What is made of the chart is current."""

from __future__ import annotations

import re

import pytest
import yaml
from rljob_operator.generate.files import CHART as FOLDER, INSTALL_FILE, README_FILE, chart_readme, install_manifest

from tests.support.chart import Chart, find_program
from tests.support.paths import ROOT


def documents(text: str) -> list[object]:
    """Helm's versions differ in empty lines between objects."""
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def test_the_install_manifest(chart: Chart) -> None:
    written = (ROOT / INSTALL_FILE).read_text()
    assert documents(written) == documents(install_manifest(ROOT / FOLDER, chart.helm)), "run: make generate"
    assert "helm" not in written.lower().replace("without helm", "")


def test_the_readme() -> None:
    program = find_program("helm-docs")
    if program is None:
        pytest.skip("helm-docs is not on the PATH")
    assert (ROOT / README_FILE).read_text() == chart_readme(ROOT / FOLDER, program), "run: make generate"
    undescribed = re.findall(r"^\| (\S+) .*\|  \|$", (ROOT / README_FILE).read_text(), re.MULTILINE)
    assert [value for value in undescribed if not value.startswith("monitoring")] == []

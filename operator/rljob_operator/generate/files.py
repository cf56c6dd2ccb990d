"""Which files of the repository are made from the controller's code, and which from the chart by other programs: Helm makes the
manifest for those without Helm, helm-docs the table of values."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from rljob_operator.generate.configuration_page import configuration_page, with_configuration
from rljob_operator.generate.rules import rights_page, rules_template

RELEASE, NAMESPACE = "rljob-operator", "rljob-system"
_HEAD = f"""\
# The operator with its CRD, for those without Helm: kubectl apply -f manifests/install.yaml
# Made from charts/rljob-operator by `make generate`. Change the chart, not this file.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
"""
_OF_HELM = re.compile(r"^ +(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE)
"""Labels that say that Helm looks after an object."""


class MissingProgram(RuntimeError):
    """A program is not on the PATH. ``str()`` names it."""


def install_manifest(chart: Path, helm: str = "helm") -> str:
    """The chart with its defaults as plain manifests, in the order in which they are applied; hooks are Helm's alone."""
    rendered = _output(
        helm,
        "template",
        RELEASE,
        str(chart),
        f"--namespace={NAMESPACE}",
        "--no-hooks",
        "--set=crds.keep=false",
        "--kube-version=1.36.0",
    )
    return _HEAD + _OF_HELM.sub("", rendered)


def chart_readme(chart: Path, helm_docs: str = "helm-docs") -> str:
    """The chart's README.md, from README.md.gotmpl and the comments of values.yaml."""
    return _output(
        helm_docs,
        f"--chart-search-root={chart}",
        "--dry-run",
        "--skip-version-footer",
        "--sort-values-order=file",
        "--log-level=warning",
    )


def _output(program: str, *words: str) -> str:
    if shutil.which(program) is None:
        raise MissingProgram(program)
    return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout


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

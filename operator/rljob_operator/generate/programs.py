"""What other programs make of the chart: Helm the manifest for those without Helm, helm-docs the table of values."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

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
    values = ("--set=crds.keep=false", "--kube-version=1.36.0")
    rendered = _output(helm, "template", RELEASE, str(chart), f"--namespace={NAMESPACE}", "--no-hooks", *values)
    return _HEAD + _OF_HELM.sub("", rendered)


def chart_readme(chart: Path, helm_docs: str = "helm-docs") -> str:
    """The chart's README.md, from README.md.gotmpl and the comments of values.yaml."""
    options = ("--dry-run", "--skip-version-footer", "--sort-values-order=file", "--log-level=warning")
    return _output(helm_docs, f"--chart-search-root={chart}", *options)


def _output(program: str, *words: str) -> str:
    if shutil.which(program) is None:
        raise MissingProgram(program)
    return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout

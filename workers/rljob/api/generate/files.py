"""Which files of the repository are made from the types."""

from __future__ import annotations

from pathlib import Path

from rljob.api.generate.crd import manifest
from rljob.api.generate.reference import reference

CRD_FILE = Path("manifests/crds/rljobs.rljob.dev.yaml")
CHART_CRD_FILE = Path("charts/rljob-operator/files/crds/rljobs.rljob.dev.yaml")
REFERENCE_FILE = Path("docs/api-reference.md")


def generated() -> dict[Path, str]:
    """Every generated file of the repository, by its path."""
    definition = manifest()
    return {CRD_FILE: definition, CHART_CRD_FILE: definition, REFERENCE_FILE: reference()}

"""CRDs of other projects, which the user who runs the tests provides: they are not ours."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class ProvidedCRDs:
    """``variable`` names a folder with the CRDs of a project, one file each, of ``pattern``."""

    variable: str
    project: str
    pattern: str

    @property
    def given(self) -> bool:
        """Whether their folder is named."""
        return bool(os.environ.get(self.variable))

    def files(self) -> list[Path]:
        """Skips the test where their folder is not named, and fails it where the folder has none."""
        folder = os.environ.get(self.variable)
        if not folder:
            pytest.skip(
                f"{self.variable} is not set: a folder with {self.project}'s CRDs (docs/testing-on-kubernetes.md)"
            )
        found = sorted(Path(folder).glob(self.pattern))
        if not found:
            pytest.fail(f"{self.variable}={folder} has no {self.pattern}")
        return found


MONITORING = ProvidedCRDs("RLJOB_MONITORING_CRDS", "the Prometheus operator", "monitoring.coreos.com_*.yaml")
KUEUE = ProvidedCRDs("RLJOB_KUEUE_CRDS", "Kueue", "kueue.x-k8s.io_*.yaml")

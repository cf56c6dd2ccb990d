"""The Prometheus operator's CRDs, which whoever runs the tests provides: they are not ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "RLJOB_MONITORING_CRDS"


def monitoring_crds() -> list[Path]:
    """Files with the kinds ServiceMonitor, PodMonitor and PrometheusRule; skips the test where nobody names their folder."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(
            f"{VARIABLE} is not set: a folder with the Prometheus operator's CRDs (docs/testing-on-kubernetes.md)"
        )
    return sorted(Path(folder).glob("monitoring.coreos.com_*.yaml"))

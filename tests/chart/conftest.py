"""Helm renders the chart; without it on the PATH or in ``KUBEBUILDER_ASSETS`` these tests are skipped."""

from tests.support.chart import chart

__all__ = ["chart"]

"""Helm renders the chart; without it on the PATH or in ``KUBEBUILDER_ASSETS`` these tests are skipped."""

import pytest

from tests.support.chart import Chart, find_program


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """The chart of this tree."""
    helm = find_program("helm")
    if helm is None:
        pytest.skip("helm is not on the PATH: version 3.8 or newer renders the chart (docs/testing-on-kubernetes.md)")
    return Chart(helm, tmp_path_factory.mktemp("helm"))

"""A cluster that is given by environment, a namespace of its own for each module, and in it an operator as a process.

Without the variables these tests are skipped; docs/testing-on-kubernetes.md says how to provide them.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Namespace, made_namespace
from tests.e2e.operator_process import OperatorProcess, operator_of

VARIABLES = ("RLJOB_E2E_KUBECONFIG", "RLJOB_E2E_IMAGE")
TEST_SECONDS = 600
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Training on a cluster takes longer than what other tests are given."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """What makes kubectl an administrator of the cluster."""
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        pytest.skip(
            f"{' and '.join(missing)} not set: a cluster's kubeconfig and a worker image that it can pull "
            "(docs/testing-on-kubernetes.md)"
        )
    return Path(os.environ["RLJOB_E2E_KUBECONFIG"]).absolute()


@pytest.fixture(scope="module")
def bare_namespace(kubeconfig: Path) -> Iterator[Namespace]:
    """A namespace with Pod Security ``restricted`` that no operator looks after."""
    with made_namespace(kubeconfig) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def jobs(kubeconfig: Path) -> Iterator[Namespace]:
    """A namespace for jobs that an operator elsewhere looks after."""
    with made_namespace(kubeconfig) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def operator(bare_namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """An operator of that namespace that leads; a test may end it and start it again."""
    with operator_of(bare_namespace, tmp_path_factory.mktemp("operator") / "log") as process:
        yield process


@pytest.fixture
def namespace(bare_namespace: Namespace, operator: OperatorProcess) -> Iterator[Namespace]:
    """The module's namespace with a running operator; no job outlives its test."""
    operator.ensure_runs()
    yield bare_namespace
    operator.ensure_runs()
    bare_namespace.delete_jobs()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Beside a test that failed stand what the cluster held then and what its operator had said."""
    report = yield
    process = getattr(item, "funcargs", {}).get("operator")
    if report.failed and isinstance(process, OperatorProcess):  # type: ignore[attr-defined]
        report.sections.append(("cluster", process.namespace.describe()))  # type: ignore[attr-defined]
        report.sections.append(("operator", process.log()[-6000:]))  # type: ignore[attr-defined]
    return report

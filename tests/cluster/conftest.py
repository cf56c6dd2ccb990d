"""One API server with our CRD for all tests of this folder; without ``KUBEBUILDER_ASSETS`` they are skipped.

A test here may be an ``async def``: it runs on the event loop of the clients that its fixtures have connected.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rljob_operator.kube.apiserver.client import Client

from tests.cluster import kueue
from tests.cluster.control_plane import CRD_FILE, EXPERIMENT_CRD_FILE, PROGRAMS, ControlPlane, connected
from tests.cluster.jobs import JOBS, create
from tests.cluster.reconciling import BreakingClient, Clock, OneJob, Run
from tests.cluster.terminal import User
from tests.support.chart import chart
from tests.support.s3_server import s3
from tests.unit.api.bad_manifests import BASE, document

__all__ = ["chart", "s3"]

VARIABLE = "KUBEBUILDER_ASSETS"


@pytest.fixture(autouse=True)
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Servers without our CRD."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(
            f"{VARIABLE} is not set: it names a folder with {', '.join(PROGRAMS)} (docs/testing-on-kubernetes.md)"
        )
    missing = [program for program in PROGRAMS if not os.access(Path(folder) / program, os.X_OK)]
    if missing:
        pytest.fail(f"{VARIABLE}={folder} lacks {', '.join(missing)}")
    servers = ControlPlane(Path(folder).absolute(), tmp_path_factory.mktemp("control-plane"))
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


@pytest.fixture(scope="session")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    """Servers that serve RLJobs and RLExperiments."""
    control_plane.told("apply", "-f", str(CRD_FILE), "-f", str(EXPERIMENT_CRD_FILE))
    wait = (
        "wait",
        "--for=condition=Established",
        "crd/rljobs.rljob.dev",
        "crd/rlexperiments.rljob.dev",
        "--timeout=30s",
    )  # an error before it has a status
    control_plane.wait_until("ready for RLJobs", lambda: control_plane.kubectl(*wait).returncode == 0)
    control_plane.wait_until("serving RLJobs", lambda: create(control_plane, document(BASE)).code != 404)
    return control_plane


@pytest.fixture(scope="module")
def with_kueue(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """Servers that serve Kueue's kinds, too."""
    kueue.install(cluster)
    yield cluster
    kueue.uninstall(cluster)


@pytest.fixture
def namespace(cluster: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own. No controller empties it at the end, so jobs and pods are removed here."""
    with made_namespace(cluster) as name:
        yield name


@pytest.fixture
def other_namespace(cluster: ControlPlane) -> Iterator[str]:
    """One more."""
    with made_namespace(cluster) as name:
        yield name


@pytest.fixture
def viewer(cluster: ControlPlane, runner: asyncio.Runner) -> Iterator[Client]:
    """An administrator's client."""
    connection = connected(cluster)
    yield runner.run(connection.__aenter__())
    runner.run(connection.__aexit__(None, None, None))


@pytest.fixture
def client(cluster: ControlPlane, runner: asyncio.Runner) -> Iterator[BreakingClient]:
    """The one of the operator that is tested."""
    connection = connected(cluster, kind=BreakingClient)
    yield runner.run(connection.__aenter__())
    runner.run(connection.__aexit__(None, None, None))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(request: pytest.FixtureRequest, client: BreakingClient, namespace: str) -> Run:
    """The operator. Its times are those of the test's ``clock`` where the test has one."""
    return Run(client, namespace, **times_of(request))


@pytest.fixture
def pong(request: pytest.FixtureRequest, viewer: Client, client: BreakingClient, run: Run) -> OneJob:
    """The job ``pong``, which is not created yet, and its operator. Their time is the test's ``clock`` where the test has one."""
    clock = request.getfixturevalue("clock") if "clock" in request.fixturenames else None
    return OneJob(viewer, client, run, clock=clock, **times_of(request))


def times_of(request: pytest.FixtureRequest) -> dict[str, Callable[[], float]]:
    if "clock" not in request.fixturenames:
        return {}
    clock = request.getfixturevalue("clock")
    return {"now": clock.now, "monotonic": clock.monotonic}


@contextmanager
def made_namespace(cluster: ControlPlane) -> Iterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    cluster.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    ours = f"/apis/rljob.dev/v1alpha1/namespaces/{name}"
    for path in (f"{ours}/rlexperiments", f"{ours}/rljobs", f"/api/v1/namespaces/{name}/pods"):
        _emptied(cluster, path)
    cluster.request("DELETE", f"/api/v1/namespaces/{name}")


def _emptied(cluster: ControlPlane, path: str) -> None:
    """Nothing waits for an operator that no longer runs: what stayed would be seen by tests that look at all namespaces, and
    the definition could not be deleted."""
    cluster.request("DELETE", f"{path}?gracePeriodSeconds=0")
    _, left = cluster.request("GET", path)
    for each in left.get("items", ()):
        unheld = {"metadata": {"finalizers": None}}
        cluster.request("PATCH", f"{path}/{each['metadata']['name']}", unheld, "application/merge-patch+json")


@pytest.fixture
def user(cluster: ControlPlane, namespace: str) -> User:
    """An administrator at a terminal, in a namespace of the test's own."""
    return User(cluster, namespace, cluster.kubeconfig)


@pytest.fixture(autouse=True)
def _no_job_stays(cluster: ControlPlane) -> Iterator[None]:
    """Each test finds and leaves a server without jobs."""
    yield
    cluster.request("DELETE", JOBS)

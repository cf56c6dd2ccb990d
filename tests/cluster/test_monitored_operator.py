"""An operator at work on a real API server, scraped as the chart's ServiceMonitor says: its dashboard's panels show something.

No node is there, so its job's pods wait for one; the operator runs beside the API server, and a file stands for the endpoint of
its Service.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import made_namespace
from tests.cluster.control_plane import ControlPlane
from tests.support.chart import Chart, find_program, only
from tests.support.dashboards import FOLDER, filled, panels
from tests.support.ports import free_ports
from tests.support.prometheus import ON_THE_PATH, SKIPPED, Prometheus
from tests.support.scrape_config import scrape_configs
from tests.support.scrape_targets import from_file, of_service
from tests.support.waiting import eventually
from tests.unit.api.bad_manifests import PRESET
from tests.unit.api.written import document

JOB = "watched"


@pytest.fixture(scope="module")
def place(cluster: ControlPlane) -> Iterator[str]:
    """The namespace of the operator and its job."""
    with made_namespace(cluster) as name:
        yield name


@pytest.fixture(scope="module")
def port(cluster: ControlPlane, place: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where an operator serves its figures."""
    (port,) = free_ports(1)
    log = tmp_path_factory.mktemp("operator") / "log"
    command = [
        sys.executable, "-m", "rljob_operator.cli", "operator", f"--namespace={place}", f"--lease-namespace={place}",
        f"--kubeconfig={cluster.kubeconfig}", "--image=rl:1", "--plain-logs", f"--port={port}",
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: " leads" in log.read_text(), log.read_text, 60)
        yield port
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def prometheus(
    cluster: ControlPlane, place: str, port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    helm = find_program("helm")
    if ON_THE_PATH is None or helm is None:
        pytest.skip(f"helm is neither on the PATH nor in KUBEBUILDER_ASSETS, or {SKIPPED}")
    chart = Chart(Path(helm), tmp_path_factory.mktemp("helm"))
    monitoring = {"serviceMonitor": {"enabled": True, "interval": "1s"}}
    objects = chart.render({"namespaceOverride": place, "monitoring": monitoring})
    folder = tmp_path_factory.mktemp("prometheus")
    targets = of_service(only(objects, "Service"), "operator-0", "operator", f"127.0.0.1:{port}")
    configs = from_file(scrape_configs(only(objects, "ServiceMonitor"), {}), folder / "endpoints.json", targets)
    job = {**document(PRESET), "metadata": {"name": JOB, "namespace": place}}
    code, answer = cluster.request("POST", f"/apis/rljob.dev/v1alpha1/namespaces/{place}/rljobs", job)
    assert code == 201, answer
    (own,) = free_ports(1)
    with Prometheus(folder, {"scrape_configs": configs}, own) as started:
        yield started


def test_the_operator_is_scraped(prometheus: Prometheus, place: str) -> None:
    eventually(lambda: prometheus.query("up == 1"), prometheus.targets, 60)
    (found,) = prometheus.query("up")
    assert found["metric"]["namespace"] == place
    assert found["metric"]["pod"] == "operator-0"


def test_every_panel_shows_something(prometheus: Prometheus, place: str) -> None:
    variables = {"namespace": place, "__rate_interval": "15s"}
    for panel in panels(FOLDER / "operator.json"):
        for expression, _ in panel.asks:
            asked = filled(expression, variables)
            eventually(lambda asked=asked: prometheus.query(asked), f"{panel.title}: {asked}", 60)


def test_a_job_is_told_until_it_is_deleted(prometheus: Prometheus, cluster: ControlPlane, place: str) -> None:
    asked = f'rljob_operator_job_condition{{namespace="{place}", rljob="{JOB}", condition="Ready"}}'
    (found,) = eventually(lambda: prometheus.query(asked), asked, 60)
    assert found["value"][1] == "0"
    cluster.request("DELETE", f"/apis/rljob.dev/v1alpha1/namespaces/{place}/rljobs/{JOB}")
    eventually(lambda: not prometheus.query(asked), asked, 60)

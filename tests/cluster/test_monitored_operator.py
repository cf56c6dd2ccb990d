"""An operator at work on a real API server, scraped as the chart's ServiceMonitor says: its dashboard's panels show something.

No node is there, so its job's pods wait for one; the operator runs beside the API server, and a file stands for the endpoint of
its Service. The job's pods are looked for in the API server, as the PodMonitor says; the test is their kubelet.

The chart's monitors and alerts, given to a real API server that has the kinds' CRDs.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from rljob.telemetry.server import TelemetryServer

from tests.cluster.conftest import made_namespace
from tests.cluster.control_plane import ControlPlane
from tests.cluster.jobs import STRICT, kept
from tests.cluster.test_kube_lease import replica
from tests.support.chart import Chart, only
from tests.support.dashboards import FOLDER, filled, panels
from tests.support.ports import free_ports
from tests.support.prometheus import ON_THE_PATH, SKIPPED, Prometheus
from tests.support.provided_crds import MONITORING
from tests.support.scrape_targets import Discovery, List, Object, from_file, of_endpoints, scrape_configs
from tests.support.waiting import eventually
from tests.unit.api.bad_manifests import PRESET, document

JOB = "watched"


@pytest.fixture(scope="module")
def place(cluster: ControlPlane) -> Iterator[str]:
    """The namespace of the operator and its job."""
    with made_namespace(cluster) as name:
        yield name


@pytest.fixture(scope="module")
def port(cluster: ControlPlane, place: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where an operator serves its figures."""
    with replica(cluster.kubeconfig, place, tmp_path_factory.mktemp("operator") / "log") as it:
        it.until_ready(200)
        yield it.port


@pytest.fixture(scope="module")
def prometheus(
    cluster: ControlPlane, chart: Chart, place: str, port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    if ON_THE_PATH is None:
        pytest.skip(SKIPPED)
    monitoring = {part: {"enabled": True, "interval": "1s"} for part in ("serviceMonitor", "podMonitor")}
    objects = chart.render({"namespaceOverride": place, "watchNamespaces": [place], "monitoring": monitoring})
    folder = tmp_path_factory.mktemp("prometheus")
    pod = {
        "metadata": {"namespace": place, "name": "operator-0"},
        "spec": {"containers": [{"name": "operator", "ports": [{"name": "metrics", "containerPort": port}]}]},
        "status": {"phase": "Running"},
    }
    address = {"ip": "127.0.0.1", "targetRef": {"name": "operator-0"}}
    endpoints = {"subsets": [{"addresses": [address], "ports": [{"name": "metrics", "port": port}]}]}
    targets = of_endpoints(only(objects, "Service"), endpoints, {(place, "operator-0"): pod})
    configs = from_file(scrape_configs(only(objects, "ServiceMonitor")), folder / "endpoints.json", targets)
    own, of_pods = free_ports(2)
    job = document(PRESET, [f"spec.monitoring.metricsPort={of_pods}"])
    job["metadata"] = {"name": JOB, "namespace": place}
    cluster.create(f"/apis/rljob.dev/v1alpha1/namespaces/{place}/rljobs", job)
    registry = CollectorRegistry()
    Gauge("rljob_learner_epoch", "The epoch of a pod.", registry=registry).set(7)
    with (
        TelemetryServer("learner", of_pods, dict, lambda: True, registry),
        Discovery(scrape_configs(only(objects, "PodMonitor")), folder, objects_of(cluster)) as discovery,
        Prometheus(folder, {"scrape_configs": [*configs, *discovery.configs]}, own) as started,
    ):
        yield started


def objects_of(cluster: ControlPlane) -> List:
    def listed(plural: str, namespace: str | None) -> list[Object]:
        folder = f"/api/v1/namespaces/{namespace}/{plural}" if namespace else f"/api/v1/{plural}"
        code, answer = cluster.request("GET", folder)
        assert code == 200, answer
        return list(answer["items"])

    return listed


def test_the_operator_is_scraped(prometheus: Prometheus, place: str) -> None:
    asked = 'up{rljob=""}'
    eventually(lambda: prometheus.query(f"{asked} == 1"), prometheus.targets, 60)
    (found,) = prometheus.query(asked)
    assert (found["metric"]["namespace"], found["metric"]["pod"]) == (place, "operator-0")


def test_a_pod_is_scraped_once_it_runs(prometheus: Prometheus, cluster: ControlPlane, place: str) -> None:
    folder = f"/api/v1/namespaces/{place}/pods"
    pod = eventually(lambda: cluster.request("GET", folder)[1]["items"], "the operator makes no pod", 60)[0]["metadata"]
    assert prometheus.query('up{rljob!=""}') == [], "it has no address yet"
    status = {"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
    cluster.change(f"{folder}/{pod['name']}/status", status)
    (found,) = eventually(lambda: prometheus.query("rljob_learner_epoch == 7"), prometheus.targets, 60)
    labels = found["metric"]
    assert (labels["namespace"], labels["rljob"], labels["pod"]) == (place, JOB, pod["name"])
    assert labels["member"] == pod["labels"]["rljob.dev/member"]
    assert (labels["container"], labels["endpoint"]) == ("worker", "metrics")


def test_every_panel_shows_something(prometheus: Prometheus, cluster: ControlPlane, place: str) -> None:
    # A job that comes up has no event; one that is refused has.
    refused = document(PRESET, ["spec.actors.tolerations=[{key: spot, value: true}]"])
    refused["metadata"] = {"name": "refused", "namespace": place}
    cluster.create(f"/apis/rljob.dev/v1alpha1/namespaces/{place}/rljobs", refused)
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


KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
GROUP = "/apis/monitoring.coreos.com/v1"
RELABEL = [{"sourceLabels": ["a"], "regex": "b", "action": "drop"}]
SCRAPED = {"enabled": True, "labels": {"release": "x"}, "interval": "30s", "scrapeTimeout": "10s"}
EVERYTHING = {
    "serviceMonitor": {**SCRAPED, "relabelings": RELABEL, "metricRelabelings": RELABEL},
    "podMonitor": {**SCRAPED, "relabelings": RELABEL, "metricRelabelings": RELABEL},
    "prometheusRule": {"enabled": True, "labels": {"release": "x"}, "ruleLabels": {"team": "rl"}},
    "dashboards": {"enabled": True},
}
PLAIN = {part: {"enabled": True} for part in EVERYTHING}


@pytest.fixture(scope="module")
def kinds(cluster: ControlPlane) -> ControlPlane:
    """An API server that knows them."""
    cluster.apply(*MONITORING.files())
    cluster.wait_until("serving monitors", lambda: all(_served(cluster, kind) for kind in KINDS))
    return cluster


def _served(cluster: ControlPlane, kind: str) -> bool:
    return cluster.request("GET", f"{GROUP}/{kind.lower()}s")[0] == 200


@pytest.mark.parametrize("values", [PLAIN, EVERYTHING], ids=["plain", "everything"])
@pytest.mark.parametrize("watched", [[], ["team-a", "team-b"]], ids=["everywhere", "two namespaces"])
def test_they_are_admitted_and_nothing_is_dropped(
    kinds: ControlPlane, chart: Chart, values: dict[str, Any], watched: list[str]
) -> None:
    objects = chart.render({"monitoring": values, "watchNamespaces": watched, "namespaceOverride": "default"})
    found = [each for each in objects if each["kind"] in KINDS]
    assert {each["kind"] for each in found} == set(KINDS)
    for each in found:
        path = f"{GROUP}/namespaces/default/{each['kind'].lower()}s?{STRICT}&dryRun=All"
        answer = kinds.create(path, each)
        assert kept(each["spec"], answer["spec"])


def test_what_is_wrong_is_refused(kinds: ControlPlane, chart: Chart) -> None:
    """So that the test above can fail: the kinds have schemas."""
    (rule,) = (
        each
        for each in chart.render({"monitoring": PLAIN, "namespaceOverride": "default"})
        if each["kind"] == "PrometheusRule"
    )
    rule["spec"]["groups"][0]["rules"][0]["for"] = "a while"
    path = f"{GROUP}/namespaces/default/prometheusrules?{STRICT}&dryRun=All"
    code, answer = kinds.request("POST", path, rule)
    assert code == 422, answer

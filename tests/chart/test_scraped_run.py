"""A real run on this machine, scraped by a real Prometheus that was told by the chart's PodMonitor alone where to look.

Its processes stand where pods would: Prometheus finds them in a file with the labels and ports of the pods that the operator
would make of the same job. On a cluster, tests/e2e/test_monitoring.py has it find the pods themselves.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from rljob.api import read_manifest
from rljob_operator.kube.render import names
from rljob_operator.kube.render.settings import Settings
from rljob_operator.verbs.render import objects

from tests.support.chart import Chart, only
from tests.support.dashboards import FILES, filled, panels
from tests.support.local_run import LocalRun
from tests.support.paths import EXAMPLES
from tests.support.ports import free_ports
from tests.support.prometheus import ON_THE_PATH, SKIPPED, Prometheus
from tests.support.scrape_targets import from_file, of_pod, scrape_configs
from tests.support.waiting import eventually

MANIFEST = EXAMPLES / "cartpole-apex.yaml"
NAMESPACE, EXPERIMENT, JOB = "team-a", "search", "search-0"
SETS = (
    "spec.successPolicy.targetReturn={value: 1000, windowEvaluations: 2}",  # out of reach, and nothing is given up for it
    "spec.evaluator.triggerReturn=0",
    "spec.evaluator.intervalSeconds=3",
    "spec.evaluator.episodes=2",
    "spec.checkpoint.intervalSeconds=3",
)
MEMBERS = {"replay-0", "learner", "actor-0", "evaluator"}
ELSEWHERE = {"GPU"}
"""Panels that this run can't fill: it has no GPU. Those that ask the operator are left out by what they ask."""
pytestmark = pytest.mark.timeout(600)


UNSCRAPED = f"spec.learner.podTemplate={{metadata: {{labels: {{{names.SCRAPE_LABEL}: 'false'}}}}}}"


def pods_of(job: str, *more: str) -> list[dict[str, Any]]:
    written = read_manifest(MANIFEST, (*SETS, *more))
    written["metadata"] |= {"namespace": NAMESPACE, "name": job}
    return [each for each in objects(written, Settings(image="rl:1")) if each["kind"] == "Pod"]


def pods() -> list[dict[str, Any]]:
    """Those that the operator would make, one of a job that wants not to be scraped, and one of another workload; all have a port
    of the same name."""
    ours = pods_of(JOB)
    (quiet,) = (
        each for each in pods_of("quiet", UNSCRAPED) if each["metadata"]["labels"][names.MEMBER_LABEL] == "learner"
    )
    web = {"name": "web", "ports": [{"name": "metrics", "containerPort": 9090}]}
    metadata = {"name": "web-0", "namespace": NAMESPACE, "labels": {"app.kubernetes.io/managed-by": "Helm"}}
    return [*ours, quiet, {"kind": "Pod", "metadata": metadata, "spec": {"containers": [web]}}]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRun]:
    sets = [word for each in SETS for word in ("--set", each)]
    with closing(LocalRun(MANIFEST, tmp_path_factory.mktemp("run") / "run", *sets)) as started:
        started.until_learning()
        started.until(lambda: all(map(started.announced, MEMBERS)), 60, "every member")
        yield started


@pytest.fixture(scope="module")
def prometheus(run: LocalRun, chart: Chart, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    if ON_THE_PATH is None:
        pytest.skip(SKIPPED)
    folder = tmp_path_factory.mktemp("prometheus")
    monitor = only(chart.render({"monitoring": {"podMonitor": {"enabled": True, "interval": "1s"}}}), "PodMonitor")
    targets = []
    for pod in pods():
        labels = pod["metadata"]["labels"]
        is_run = labels.get(names.JOB_LABEL) == JOB
        url = run.announced(labels[names.MEMBER_LABEL])["metrics_url"] if is_run else "http://127.0.0.1:1"
        pod["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
        targets += of_pod(pod, url.removeprefix("http://"))
    configs = from_file(scrape_configs(monitor), folder / "pods.json", targets)
    (port,) = free_ports(1)
    with Prometheus(folder, {"scrape_configs": configs}, port) as started:
        yield started


def test_every_member_is_scraped_and_nobody_else(prometheus: Prometheus) -> None:
    eventually(lambda: len(prometheus.query("up == 1")) == len(MEMBERS), lambda: prometheus.query("up"), 60)
    found = {each["metric"]["member"]: each["metric"] for each in prometheus.query("up")}
    assert set(found) == MEMBERS
    for labels in found.values():
        assert labels["rljob"] == JOB
        assert (labels["namespace"], labels["container"], labels["endpoint"]) == (NAMESPACE, "worker", "metrics")
        assert labels["pod"].startswith(f"{JOB}-{labels['member']}-")
    dropped = {
        each["discoveredLabels"]["__meta_kubernetes_pod_name"] for each in prometheus.targets()["droppedTargets"]
    }
    assert {name for name in dropped if not name.startswith(JOB)} == {"web-0", "quiet-learner-xxxxx"}


@pytest.mark.parametrize(
    ("title", "expression"),
    [
        (panel.title, expression)
        for file in FILES
        if file.stem != "operator"
        for panel in panels(file)
        for expression, _ in panel.asks
        if panel.title not in ELSEWHERE and "rljob_operator_" not in expression
    ],
)
def test_a_panel_shows_something_of_the_run(prometheus: Prometheus, run: LocalRun, title: str, expression: str) -> None:
    chosen = {"namespace": NAMESPACE, "rljob": JOB, "experiment": EXPERIMENT, "__rate_interval": "15s"}
    asked = filled(expression, chosen)
    eventually(lambda: prometheus.query(asked), lambda: f"{asked}\n{run.output}{run.logs()}", 300)

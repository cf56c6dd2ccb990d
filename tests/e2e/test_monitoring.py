"""Monitoring on a cluster: the chart's monitors are applied, Prometheus does what they say, and every panel and alert works.

It is told of pods and endpoints by files (`tests.support.scrape_targets`), since Debian's Prometheus can't ask the API server.

``RLJOB_E2E_PROMETHEUS`` names a folder in which Prometheus's data stay, for `benchmarks/dashboard_pictures.py`, and
``RLJOB_E2E_MONITORED_SECONDS`` how long the jobs are watched before the panels are asked.
"""

import json
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import LONG_SECONDS, Namespace, apex, checkpoint_claim, endless, pause
from tests.e2e.operator_process import PREFIX
from tests.support.chart import Chart, find_program
from tests.support.dashboards import FILES, alerts, filled, panels
from tests.support.ports import free_ports
from tests.support.prometheus import ON_THE_PATH, SKIPPED, Prometheus
from tests.support.provided_crds import MONITORING
from tests.support.scrape_targets import Discovery, scrape_configs
from tests.support.waiting import eventually

RELEASE = "watched"
NAME = f"{RELEASE}-rljob-operator"
IMAGE = "RLJOB_E2E_OPERATOR_IMAGE"
SECONDS = float(os.environ.get("RLJOB_E2E_MONITORED_SECONDS", "45"))
START_SECONDS = 480
"""Every node pulls the image first, and ten pods share two cores."""
MEMBERS = {
    "apex": {"replay-0", "replay-1", "learner", "actor-0", "actor-1", "evaluator"},
    "impala": {"learner", "actor-0"},
}
WITHOUT = {"apex": {"GPU"}, "impala": {"GPU", "Replay fill", "Not yet in Redis", "Samples per insert", "Return"}}
"""Panels that a job can't fill: there is no GPU, and IMPALA has no replay; its job here has no evaluator."""


@pytest.fixture(scope="module")
def watched(bare_namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """The chart with all of its monitoring, two replicas of the operator, and a job of each algorithm that trains."""
    helm, image = find_program("helm"), os.environ.get(IMAGE, "")
    if ON_THE_PATH is None:
        pytest.skip(SKIPPED)
    if helm is None or not image:
        pytest.skip(f"helm is not on the PATH, or {IMAGE} does not name an image of the operator")
    for file in MONITORING.files():
        bare_namespace.kubectl("apply", "--server-side", "-f", str(file))
    chart = Chart(Path(helm), tmp_path_factory.mktemp("helm"))
    where = (f"--namespace={bare_namespace.name}", f"--kubeconfig={bare_namespace.kubeconfig}")
    chart.run(
        "install", RELEASE, str(chart.folder), *where, "--wait", "--timeout=4m", values=values(bare_namespace, image)
    )
    try:
        training = {
            "targetReturn": {"value": 1000, "windowEvaluations": 2}
        }  # out of reach, and nothing is given up for it
        evaluator = {"enabled": True, "intervalSeconds": 10, "episodes": 2, "triggerReturn": 0}
        bare_namespace.apply(
            checkpoint_claim(), apex("apex", evaluator=evaluator, successPolicy=training), endless("impala")
        )
        for job in MEMBERS:
            wait = ("wait", f"rljob/{job}", "--for=condition=Ready", f"--timeout={START_SECONDS}s")
            bare_namespace.kubectl(*wait, seconds=START_SECONDS + 20)
            bare_namespace.wait_updates(job)
        yield bare_namespace
    finally:
        bare_namespace.kubectl("scale", "deployment", NAME, "--replicas=2")
        bare_namespace.delete_jobs()
        chart.run("uninstall", RELEASE, *where, "--no-hooks")


def values(namespace: Namespace, image: str) -> dict[str, Any]:
    repository, _, tag = image.rpartition(":")
    scraped = {"enabled": True, "interval": "2s"}
    return {
        "crds": {"enabled": False},
        "image": {"repository": repository, "tag": tag},
        "config": {"image": os.environ["RLJOB_E2E_IMAGE"]},
        "watchNamespaces": [namespace.name],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "monitoring": {
            "serviceMonitor": scraped,
            "podMonitor": scraped,
            "prometheusRule": {"enabled": True},
            "dashboards": {"enabled": True},
        },
    }


@pytest.fixture(scope="module")
def prometheus(watched: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Started with what the cluster's monitors and rules say, on the pods' network."""
    prefix = shlex.split(os.environ.get(PREFIX, ""))
    folder = tmp_path_factory.mktemp("prometheus")
    found = watched.list("servicemonitors,podmonitors")
    assert {each["kind"] for each in found} == {"ServiceMonitor", "PodMonitor"}
    configs = [config for monitor in found for config in scrape_configs(monitor)]
    (rule,) = watched.list("prometheusrules")
    (folder / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    data = os.environ.get("RLJOB_E2E_PROMETHEUS")
    (port,) = free_ports(1)
    with Discovery(configs, folder, lambda plural, namespace: objects(watched, plural, namespace)) as discovery:
        config = {
            "global": {"evaluation_interval": "5s"},
            "rule_files": [str(folder / "rules.yaml")],
            "scrape_configs": discovery.configs,
        }
        with Prometheus(folder, config, port, prefix, Path(data).absolute() if data else None) as started:
            yield started


def objects(cluster: Namespace, plural: str, namespace: str | None) -> list[dict[str, Any]]:
    """As kubectl lists them, in another namespace or in all."""
    where = f"--namespace={namespace}" if namespace else "--all-namespaces"
    return list(json.loads(cluster.kubectl("get", plural, where, "-o", "json"))["items"])


def up(prometheus: Prometheus) -> dict[tuple[str, str], dict[str, str]]:
    """(job, member) -> the labels of each target that answers; the operator's replicas stand under their pods' names."""
    return {
        (each["metric"].get("rljob", "operator"), each["metric"].get("member", each["metric"]["pod"])): each["metric"]
        for each in prometheus.query("up == 1")
    }


@pytest.mark.timeout(1200)  # with everything that it waits for before
def test_every_pod_is_scraped_and_nothing_else(watched: Namespace, prometheus: Prometheus) -> None:
    operators = {pod["metadata"]["name"] for pod in watched.list("pods", f"app.kubernetes.io/instance={RELEASE}")}
    assert len(operators) == 2
    wanted = {(job, member) for job, members in MEMBERS.items() for member in members}
    wanted |= {("operator", name) for name in operators}
    eventually(lambda: set(up(prometheus)) == wanted, lambda: sorted(up(prometheus)), LONG_SECONDS, pause)
    for (job, _), labels in up(prometheus).items():
        assert (labels["namespace"], labels["endpoint"]) == (watched.name, "metrics")
        assert labels["container"] == ("operator" if job == "operator" else "worker")
    assert prometheus.query("up == 0") == []


def test_every_panel_shows_something(watched: Namespace, prometheus: Prometheus) -> None:
    time.sleep(SECONDS)
    for file in FILES:
        for job in MEMBERS if file.stem == "job" else ("",):
            variables = {"namespace": watched.name, "rljob": job, "__rate_interval": "20s"}
            empty = set()
            for panel in panels(file):
                for expression, _ in panel.asks:
                    asked, now = filled(expression, variables), time.time()
                    if not prometheus.query_range(asked, now - SECONDS - 30, now, 5):
                        empty.add(panel.title)
            assert empty == WITHOUT.get(job, set()), (file.stem, job)


def test_what_the_operator_says_of_a_job_has_the_jobs_labels(watched: Namespace, prometheus: Prometheus) -> None:
    (found,) = prometheus.query('rljob_operator_job_condition{rljob="apex", condition="Ready"}')
    assert (found["metric"]["namespace"], found["metric"]["reason"]) == (watched.name, "Running")
    assert "exported_namespace" not in found["metric"]


def test_every_alert_is_evaluated_and_none_is_wrong(prometheus: Prometheus) -> None:
    rules = {rule["name"]: rule for rule in prometheus.rules()}
    assert set(rules) == set(alerts())
    assert {name: rule["health"] for name, rule in rules.items()} == dict.fromkeys(alerts(), "ok")
    assert [name for name, rule in rules.items() if rule["state"] == "firing"] == []


def test_without_an_operator_its_alert_begins_to_count(watched: Namespace, prometheus: Prometheus) -> None:
    watched.kubectl("scale", "deployment", NAME, "--replicas=0")

    def states() -> dict[str, str]:
        return {rule["name"]: rule["state"] for rule in prometheus.rules()}

    eventually(lambda: states()["RLJobOperatorWithoutLeader"] in ("pending", "firing"), states, LONG_SECONDS, pause)

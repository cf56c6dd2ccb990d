"""Actors follow a learner that becomes slower and faster again: by the controller's own law, and by KEDA with its HPA.

The tests follow each other on one job. Its game costs no processor, so that the number of actors is what matters.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import LONG_SECONDS, Namespace, job, pause, requests, shared_claim
from tests.e2e.operator_process import OperatorProcess, operator_of
from tests.support import slow_game
from tests.support.paths import EXAMPLES
from tests.support.slowed import sitecustomize
from tests.support.slowed.sitecustomize import LEARNER_DELAY_FILE
from tests.support.waiting import eventually

JOB = "slow-game"
SCALED = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "name": JOB}
FAST, SLOW = 0.05, 0.5
"""Seconds that are added to each update: work for three actors, and for less than one."""
METRICS_PORT = 18080
ADDRESS = "RLJOB_E2E_ADDRESS"
"""Where the cluster reaches the operator, which is a process of the tests."""
GAMES, LEFT = "games", "left"
READ_LEFT = (
    "import json, pathlib, urllib.request as u\n"
    "left = {path.name.removesuffix('.final.json'): json.loads(path.read_text())\n"
    "        for path in pathlib.Path('/left').glob('actor-*.final.json')}\n"
    "page = u.urlopen('http://127.0.0.1:9090/status', timeout=5).read().decode()\n"
    "print(json.dumps({'left': left, 'accepted': json.loads(page)['accepted']}))\n"
)
"""Run in the replay's container: what actors have left at their end, and what the replay has accepted of each."""


@pytest.fixture(scope="module")
def operator(bare_namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """As elsewhere, and with its own figures to be read."""
    with operator_of(bare_namespace, tmp_path_factory.mktemp("operator") / "log", f"--port={METRICS_PORT}") as process:
        yield process


@pytest.fixture(scope="module")
def trains(bare_namespace: Namespace, operator: OperatorProcess) -> Namespace:
    """The namespace in which the job runs, fast, under the controller's own law."""
    files = (slow_game.__file__, sitecustomize.__file__)
    source = {Path(each).name: Path(each).read_text() for each in files}
    games = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": GAMES}, "data": source}
    bare_namespace.apply(games, shared_claim(LEFT), manifest())
    bare_namespace.wait_for(JOB, "Ready", "True")
    return bare_namespace


def manifest() -> dict[str, Any]:
    """The job of the tests on one machine, with its game from a ConfigMap and a place where actors leave their last words."""
    spec = yaml.safe_load(slow_game.JOB.read_text())["spec"]
    spec["environment"]["id"] = "slow_game:make"
    spec["successPolicy"] = {"rawFrames": 1_000_000_000}
    path_of_game = [{"name": "PYTHONPATH", "value": "/games"}]
    games = {"name": "games", "configMap": {"name": GAMES}}
    left = {"name": "left", "persistentVolumeClaim": {"claimName": LEFT}}

    def role(path: str = "") -> dict[str, Any]:
        volumes, mounts = [games], [{"name": "games", "mountPath": "/games"}]
        if path:
            volumes, mounts = [games, left], [*mounts, {"name": "left", "mountPath": path}]
        template = {"spec": {"volumes": volumes, "containers": [{"name": "worker", "volumeMounts": mounts}]}}
        return {**requests(), "env": path_of_game, "podTemplate": template}

    spec["actors"] |= role("/var/lib/rljob/roles")
    spec["replay"] |= {**role("/left"), "redis": {"persistence": {"mode": "None"}}}
    delay = [{"name": LEARNER_DELAY_FILE, "value": "/tmp/delay"}]
    spec["learner"] = {**role(), "env": [*path_of_game, *delay]}
    return job(JOB, **spec)


def delay_updates(namespace: Namespace, seconds: float) -> None:
    """Have the learner take so much longer for each update."""
    pod = namespace.pods(JOB)["learner"]["metadata"]["name"]
    write = f"open('/tmp/delay', 'w').write('{seconds}')"
    namespace.kubectl("exec", pod, "-c", "worker", "--", "python3", "-c", write)


def wait_actors(namespace: Namespace, least: int, most: int) -> None:
    """Until there are so many, no other is on its way, and so many shall be."""

    def settled() -> bool:
        status = namespace.job_status(JOB)
        actors, desired = status["actors"], status["autoscaling"]["desiredReplicas"]
        there = [pod for pod in namespace.all_pods(JOB) if "-actor-" in pod["metadata"]["name"]]
        return least <= desired <= most and actors["ready"] == desired == len(there)

    def describe() -> str:
        status = namespace.job_status(JOB)
        return f"wanted {least} to {most} actors: {status['actors']}, {status['autoscaling']['lastDecision']}"

    eventually(settled, describe, LONG_SECONDS, pause)


def check_that_nothing_was_lost(namespace: Namespace) -> None:
    """For each actor that left, produced = acknowledged + dropped + in flight; the replay has all that was acknowledged."""
    pods = namespace.pods(JOB)
    text = namespace.kubectl(
        "exec", pods["replay-0"]["metadata"]["name"], "-c", "worker", "--", "python3", "-c", READ_LEFT
    )
    found = json.loads(text)
    left = {name: actor for name, actor in found["left"].items() if name not in pods}
    assert left, found
    for name, actor in left.items():
        accepted = found["accepted"][name]
        assert actor["acknowledged"] > 0
        assert actor["produced"] == actor["acknowledged"] + actor["unacknowledged"] + sum(actor["dropped"].values())
        assert accepted["incarnation"] == actor["incarnation"]
        assert actor["acknowledged"] <= accepted["transitions"] <= actor["acknowledged"] + actor["unacknowledged"]


def test_the_controller_follows_the_learner_both_ways(trains: Namespace) -> None:
    delay_updates(trains, FAST)
    trains.wait_for(JOB, "ScalingActive", "True", "ValidMetricFound")
    wait_actors(trains, 2, 6)
    delay_updates(trains, SLOW)
    wait_actors(trains, 1, 1)
    check_that_nothing_was_lost(trains)
    delay_updates(trains, FAST)
    wait_actors(trains, 2, 6)
    assert trains.job_status(JOB)["restarts"] == {"counted": 0, "ignored": 0}


def test_an_hpa_beside_the_controllers_law_is_told(trains: Namespace) -> None:
    trains.apply(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "other"},
            "spec": {"scaleTargetRef": SCALED, "minReplicas": 9, "maxReplicas": 9},
        }
    )
    try:
        trains.wait_for(JOB, "ScalingLimited", "True", "TwoAutoscalers")
    finally:
        trains.kubectl("delete", "hpa", "other")
    trains.kubectl("scale", "rljob", JOB, "--replicas=1")
    eventually(
        lambda: trains.condition(JOB, "ScalingLimited")["reason"] != "TwoAutoscalers",
        lambda: trains.condition(JOB, "ScalingLimited"),
        LONG_SECONDS,
        pause,
    )


def follow_the_recommendation(namespace: Namespace, **autoscaler: Any) -> None:
    """An example's autoscaler, with this spec, sets the number that is recommended: more, fewer and more again."""
    namespace.patch(JOB, {"autoscaling": {"mode": "External"}})
    namespace.kubectl("scale", "rljob", JOB, "--replicas=1")
    delay_updates(namespace, FAST)
    wait_actors(namespace, 1, 1)
    namespace.apply(autoscaler)
    try:
        wait_actors(namespace, 2, 6)
        delay_updates(namespace, SLOW)
        wait_actors(namespace, 1, 1)
        check_that_nothing_was_lost(namespace)
        delay_updates(namespace, FAST)
        wait_actors(namespace, 2, 6)
    finally:
        namespace.kubectl("delete", autoscaler["kind"], autoscaler["metadata"]["name"])
    assert namespace.job_status(JOB)["restarts"] == {"counted": 0, "ignored": 0}


def test_keda_follows_the_recommendation_both_ways(trains: Namespace, operator: OperatorProcess) -> None:
    address = os.environ.get(ADDRESS)
    if not address or trains.get("crd", "scaledobjects.keda.sh") is None:
        pytest.skip(f"{ADDRESS} is not set, or the cluster has no KEDA (docs/testing-on-kubernetes.md)")
    found = yaml.safe_load((EXAMPLES / "autoscaling" / "keda.yaml").read_text())
    found["spec"] |= {"scaleTargetRef": SCALED, "maxReplicaCount": 6, "pollingInterval": 5}
    found["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"][
        "stabilizationWindowSeconds"
    ] = 0
    asked = found["spec"]["triggers"][0]["metadata"]
    for of_a_service in ("aggregateFromKubeServiceEndpoints", "aggregationType"):
        del asked[of_a_service]
    asked["url"] = f"http://{address}:{METRICS_PORT}/metrics"
    asked["valueLocation"] = f'rljob_operator_recommended_actors{{namespace="{trains.name}",rljob="{JOB}"}}'
    follow_the_recommendation(trains, **found)

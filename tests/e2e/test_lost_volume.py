"""A node goes for good, and a replay shard's volume with it: the job trains on without what the shard held."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.e2e.cluster import LONG_SECONDS, Namespace, pause
from tests.e2e.jobs import apex, requests
from tests.e2e.nodes import gone
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually

JOB = "moved"
LOST_SECONDS = 20
ANYWHERE = {"tolerations": [{"operator": "Exists"}]}
SHARDS = {"labelSelector": {"matchLabels": {"rljob.dev/role": "replay"}}, "topologyKey": "kubernetes.io/hostname"}
ELSEWHERE = {
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": SHARDS}]
        }
    }
}
"""The learner and the actor are rather on another node than the shard, so that they outlive it."""


@pytest.fixture(scope="module")
def operator(bare_namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """One that does not wait long for a lost volume. It may read nodes, as one of all namespaces may."""
    folder = tmp_path_factory.mktemp("operator")
    (folder / "config.yaml").write_text(yaml.safe_dump({"volumeLostSeconds": LOST_SECONDS}))
    process = OperatorProcess(bare_namespace, folder / "log", f"--config={folder / 'config.yaml'}")
    try:
        process.start()
        yield process
        process.ensure_runs()
        bare_namespace.delete_jobs()
        process.stop()
    finally:
        process.end_all()


def claims(namespace: Namespace) -> set[str]:
    """Names of those that nobody has asked to go."""
    found = namespace.list("persistentvolumeclaims")
    return {each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]}


def test_a_shard_starts_cold_where_its_node_is_gone(namespace: Namespace) -> None:
    redis = {**requests("20m", "64Mi"), "persistence": {"storage": "1Gi"}}
    others = {**requests(), **ANYWHERE, **ELSEWHERE}
    namespace.apply(
        apex(
            JOB,
            checkpoint={"onSuspend": "Skip"},
            learner=others,
            actors={"replicas": 1, **others},
            replay={"shards": 1, "redis": redis, **requests(), **ANYWHERE},
        )
    )
    namespace.wait_for(JOB, "Ready", "True")
    namespace.wait_updates(JOB)
    before, restarts = namespace.pods(JOB), namespace.job_status(JOB)["restarts"]
    node = before["replay-0"]["spec"]["nodeName"]
    assert {before[member]["spec"]["nodeName"] for member in ("learner", "actor-0")} != {node}
    assert claims(namespace) == {f"{JOB}-replay-0"}

    with gone(namespace, node):
        lost = namespace.wait_for(JOB, "ReplayReady", "False", "VolumeLost")
        assert node in lost["message"]
        namespace.wait_for(JOB, "ReplayReady", "True")
        after = namespace.pods(JOB)
        assert after["replay-0"]["spec"]["nodeName"] != node
        eventually(
            lambda: claims(namespace) == {f"{JOB}-replay-0-1"},
            lambda: f"claims are {claims(namespace)}",
            LONG_SECONDS,
            pause,
        )
        namespace.wait_for(JOB, "Ready", "True")
        namespace.wait_updates(JOB, more_than=namespace.learner_figures(JOB).get("updates", 0))
        assert namespace.job_status(JOB)["restarts"]["counted"] == restarts["counted"], (
            "a lost node is no failure of the job's"
        )

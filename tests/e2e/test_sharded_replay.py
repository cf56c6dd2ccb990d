"""Ape-X with two shards on claims of their own: roles land where they shall, and nothing learned is lost.

The tests follow each other on one job, since each begins with a job that trains.
"""

import re
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import LONG_SECONDS, Namespace, apex, checkpoint_claim, pause
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually

JOB = "apex"
ALL = {"replay-0", "replay-1", "learner", "actor-0", "actor-1"}


@pytest.fixture(scope="module")
def trains(bare_namespace: Namespace, operator: OperatorProcess) -> Iterator[Namespace]:
    """The namespace in which the job trains."""
    bare_namespace.train(checkpoint_claim(), apex(JOB))
    yield bare_namespace
    bare_namespace.delete_jobs()


def test_roles_land_where_they_shall(trains: Namespace) -> None:
    pods = trains.pods(JOB)

    assert set(pods) == ALL
    spot_nodes = {
        node["metadata"]["name"]
        for node in trains.list("nodes")
        if node["metadata"]["labels"].get("rljob.dev/spot") == "true"
    }
    for member, pod in pods.items():
        assert (pod["spec"]["nodeName"] in spot_nodes) == member.startswith("actor"), member
    claims = {claim["metadata"]["name"]: claim["status"]["phase"] for claim in trains.list("persistentvolumeclaims")}
    assert claims == {"checkpoints": "Bound", f"{JOB}-replay-0": "Bound", f"{JOB}-replay-1": "Bound"}
    for shard in ("replay-0", "replay-1"):
        volumes = [each.get("persistentVolumeClaim", {}).get("claimName") for each in pods[shard]["spec"]["volumes"]]
        assert f"{JOB}-{shard}" in volumes


def test_a_shard_that_is_deleted_comes_back_with_what_it_held(trains: Namespace) -> None:
    restarts = trains.job_status(JOB)["restarts"]
    before = trains.pods(JOB)["replay-1"]["metadata"]

    trains.kubectl("delete", "pod", before["name"], "--wait=false")
    eventually(
        lambda: trains.uids(JOB).get("replay-1", before["uid"]) != before["uid"],
        "no pod follows the shard's",
        LONG_SECONDS,
        pause,
    )
    restored = eventually(
        lambda: re.search(r"replay log: ([\d,]+) transitions in [\d,]+ chunks restored", trains.log(JOB, "replay-1")),
        lambda: trains.log(JOB, "replay-1"),
        LONG_SECONDS,
        pause,
    )
    assert int(restored[1].replace(",", "")) > 0
    trains.wait_for(JOB, "ReplayReady", "True")
    trains.wait_updates(JOB, more_than=trains.learner_figures(JOB).get("updates", 0))

    after = trains.job_status(JOB)
    assert after["restarts"] == {**restarts, "ignored": restarts["ignored"] + 1}
    assert [each["reason"] for each in after["failures"] if each["podName"] == before["name"]] == ["Disrupted"]

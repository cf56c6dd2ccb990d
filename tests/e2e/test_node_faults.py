"""Nodes that are drained, cut off, or lose their kubelet: the training goes on, and each cause is named.

The tests follow each other on one job, each on the nodes where the one before has left it. Its volumes are bound to no node, so
that learner and shards may go anywhere.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import pytest

from tests.e2e.cluster import LONG_SECONDS, SHARED, Namespace, apex, pause, requests, shared_claim
from tests.e2e.nodes import drained, ready, wait_ready, without
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually

JOB = "apex"
CORE = ("learner", "replay-0", "replay-1")
ANYWHERE = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
CUT_SECONDS = 60.0
NAMED_SECONDS = 10.0


@pytest.fixture(scope="module")
def trains(bare_namespace: Namespace, operator: OperatorProcess) -> Iterator[Namespace]:
    """The namespace in which the job trains."""
    redis = {**requests("20m", "64Mi"), "persistence": {"storage": "1Gi", "storageClassName": SHARED}}
    spec = {
        "learner": {**requests(), **ANYWHERE},
        "replay": {"shards": 2, "redis": redis, **requests(), **ANYWHERE},
    }
    bare_namespace.apply(shared_claim(), apex(JOB, **spec))
    wait_trains(bare_namespace)
    yield bare_namespace
    bare_namespace.delete_jobs()


def wait_trains(namespace: Namespace) -> None:
    """Until all roles are up and the learner makes updates."""
    namespace.wait_for(JOB, "Ready", "True", "Running")
    namespace.wait_updates(JOB, more_than=namespace.learner_figures(JOB).get("updates", 0))


def node_of(namespace: Namespace, member: str) -> str:
    return str(namespace.pods(JOB)[member]["spec"]["nodeName"])


def roles(members: Iterable[str]) -> Counter[str]:
    """How many there are of each role. An actor that is made to leave is followed by one with another number."""
    return Counter(name.rsplit("-", 1)[0] for name in members)


def ignored(restarts: Mapping[str, int], more: int) -> dict[str, int]:
    """The counts after so many ends more that count as no failure."""
    return {**restarts, "ignored": restarts["ignored"] + more}


def seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def test_a_cordon_moves_nothing_and_a_drain_has_the_learner_save_and_go_on_elsewhere(trains: Namespace) -> None:
    before, restarts = trains.pods(JOB), trains.job_status(JOB)["restarts"]
    node = before["learner"]["spec"]["nodeName"]
    there = [name for name in before if before[name]["spec"]["nodeName"] == node]
    trains.kubectl("cordon", node)
    trains.wait_updates(JOB, more_than=trains.learner_figures(JOB)["updates"])
    assert trains.uids(JOB) == {name: pod["metadata"]["uid"] for name, pod in before.items()}
    updates = trains.learner_figures(JOB)["updates"]

    with drained(trains, node):
        resumed = eventually(
            lambda: re.search(r"resumed from \S+: update (\d+), epoch (\d+)", trains.log(JOB, "learner")),
            lambda: trains.log(JOB, "learner"),
            LONG_SECONDS,
            pause,
        )
        assert int(resumed[1]) >= updates
        wait_trains(trains)
        after = trains.pods(JOB)
        assert all(after[name]["spec"]["nodeName"] != node for name in after)

    assert trains.job_status(JOB)["restarts"] == ignored(restarts, len(there)), "all were evicted"


def test_a_node_without_a_kubelet_is_named_and_the_training_goes_on(trains: Namespace) -> None:
    before, restarts = trains.uids(JOB), trains.job_status(JOB)["restarts"]
    node = node_of(trains, "learner")
    updates = trains.learner_figures(JOB)["updates"]

    with without(trains, node, "kubelet"):
        lost = wait_ready(trains, node, "Unknown")
        named = trains.wait_for(JOB, "LearnerReady", "False", "NodeLost")
        assert node in named["message"]
        assert seconds(named["lastTransitionTime"]) - seconds(lost["lastTransitionTime"]) <= NAMED_SECONDS
        assert trains.wait_for(JOB, "ReplayReady", "False", "NodeLost")
        assert trains.condition(JOB, "Ready")["status"] == "True"
        eventually(  # its containers run on; kubectl can't ask in them without the kubelet
            lambda: trains.job_status(JOB)["progress"]["learnerUpdates"] > updates,
            lambda: f"{trains.job_status(JOB)['progress']}",
            LONG_SECONDS,
            pause,
        )

    trains.wait_for(JOB, "LearnerReady", "True")
    wait_trains(trains)
    assert (trains.uids(JOB), trains.job_status(JOB)["restarts"]) == (before, restarts)


def test_learner_and_shards_that_are_cut_off_are_named_before_their_node_counts_as_lost(trains: Namespace) -> None:
    before, restarts = trains.uids(JOB), trains.job_status(JOB)["restarts"]
    node = node_of(trains, "learner")
    cut_off = [name for name in CORE if node_of(trains, name) == node]

    with without(trains, node, "network"):
        began = time.monotonic()

        def named() -> bool:
            message = trains.condition(JOB, "Ready").get("message", "")
            return all(member in message for member in cut_off)

        eventually(named, lambda: f"Ready is {trains.condition(JOB, 'Ready')}", LONG_SECONDS, pause)
        print(f"{cut_off} named after {time.monotonic() - began:.1f} s")
        assert ready(trains, node)["status"] == "True"
        wait_ready(trains, node, "Unknown")
        trains.wait_for(JOB, "LearnerReady", "False", "NodeLost")
        time.sleep(max(0.0, CUT_SECONDS - (time.monotonic() - began)))

    wait_trains(trains)
    assert (trains.uids(JOB), trains.job_status(JOB)["restarts"]) == (before, restarts)


def test_a_shard_that_is_killed_with_its_volume_begins_anew(trains: Namespace) -> None:
    restarts = trains.job_status(JOB)["restarts"]
    pod = trains.pods(JOB)["replay-1"]["metadata"]
    claim = trains.get("persistentvolumeclaim", f"{JOB}-replay-1")
    assert claim is not None

    trains.kubectl("delete", "persistentvolumeclaim", claim["metadata"]["name"], "--wait=false")
    trains.kubectl("delete", "pod", pod["name"], "--force", "--grace-period=0", "--wait=false")
    eventually(
        lambda: trains.uids(JOB).get("replay-1", pod["uid"]) != pod["uid"],
        "no pod follows the shard's",
        LONG_SECONDS,
        pause,
    )
    wait_trains(trains)
    after = trains.get("persistentvolumeclaim", f"{JOB}-replay-1")
    assert after is not None
    assert after["metadata"]["uid"] != claim["metadata"]["uid"]
    assert trains.job_status(JOB)["restarts"] == ignored(restarts, 1)


def test_all_pods_are_killed_at_once(trains: Namespace) -> None:
    restarts, before = trains.job_status(JOB)["restarts"], trains.uids(JOB)
    step = trains.job_status(JOB)["checkpoint"]["step"]

    trains.kubectl("delete", "pods", f"--selector=rljob.dev/job={JOB}", "--force", "--grace-period=0", "--wait=false")
    eventually(
        lambda: not set(trains.uids(JOB).values()) & set(before.values()) and roles(trains.uids(JOB)) == roles(before),
        lambda: f"pods are {sorted(trains.uids(JOB))}",
        LONG_SECONDS,
        pause,
    )
    wait_trains(trains)
    assert trains.learner_figures(JOB)["updates"] > step
    assert trains.job_status(JOB)["restarts"] == ignored(restarts, len(before))

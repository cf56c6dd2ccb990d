"""The caches of pods and children: what they keep, by which job they find it, what they tell, and what a pod costs."""

import copy
import gc
import json
import tracemalloc
from typing import Any

import pytest
from rljob_operator.kube.watch.kept import ChildrenOfOneKind
from rljob_operator.kube.watch.pods import PodCache, is_gone, same_but_for_the_version, trim

from tests.unit.operator.kube.sample_pods import container, job_owner, running_pod

MOST_BYTES_A_POD = 8 * 1024
UID = running_pod()["metadata"]["ownerReferences"][0]["uid"]
KEY = ("team", "pong")


class Cache(PodCache):
    """Notes what it tells."""

    def __init__(self) -> None:
        super().__init__(lambda key, kind, pod: self.told.append((key, kind, pod["metadata"]["name"])))
        self.told: list[tuple[tuple[str, str], str, str]] = []

    def heard(self) -> list[str]:
        """What was told since the last time, shortly."""
        told, self.told = self.told, []
        return [f"{kind} {name.removeprefix('pong-actor-').removesuffix('-x7k2p')}" for _, kind, name in told]


@pytest.fixture
def cache() -> Cache:
    return Cache()


def kept(number: int, **metadata: Any) -> dict[str, Any]:
    return trim(running_pod(number, **metadata))


def test_of_a_pod_is_kept_what_the_controller_reads() -> None:
    pod = running_pod(3, deletionTimestamp="2026-11-23T12:00:00Z", deletionGracePeriodSeconds=30)
    when = pod["metadata"]["creationTimestamp"]
    status = {
        "name": "main",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": when}},
    }
    conditions = [
        {name: condition[name] for name in ("type", "status", "lastTransitionTime")}
        for condition in pod["status"]["conditions"]
    ]
    owner = job_owner("pong", UID)
    del owner["blockOwnerDeletion"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "labels",
             "deletionTimestamp", "deletionGracePeriodSeconds")  # fmt: skip
    assert trim(pod) == {
        "metadata": {
            **{name: pod["metadata"][name] for name in names},
            "annotations": {"rljob.dev/revision": "1f2e3d4c"},
            "ownerReferences": [owner],
        },
        "spec": {"hostname": "actor-3", "nodeName": "gke-pool-3"},
        "status": {
            "phase": "Running",
            "podIP": "10.1.0.3",
            "startTime": when,
            "conditions": conditions,
            "containerStatuses": [status],
            "initContainerStatuses": [{**status, "name": "redis"}],
        },
    }


def test_how_a_container_ended_is_kept_to_its_last_word() -> None:
    ended = {"exitCode": 1, "signal": 9, "reason": "OOMKilled", "message": "x" * 5000, "finishedAt": "f"}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "y" * 5000}}
    pod = running_pod()
    pod["status"]["containerStatuses"] = [
        container(
            "main",
            "w",
            state=waiting,
            lastState={"terminated": {**ended, "containerID": "c"}},
            restartCount=4,
            ready=False,
            started=False,
        )
    ]
    assert trim(pod)["status"]["containerStatuses"] == [
        {
            "name": "main",
            "ready": False,
            "started": False,
            "restartCount": 4,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "y" * 1024}},
            "lastState": {"terminated": {**ended, "message": "x" * 4096}},
        }
    ]


@pytest.mark.parametrize("missing", ["spec", "status"])
def test_a_pod_that_lacks_everything_is_kept_as_it_is(missing: str) -> None:
    bare: dict[str, Any] = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"}}
    assert (trim(bare), trim({**bare, missing: None})) == (bare, bare)
    assert trim({**bare, "status": {"conditions": None, "containerStatuses": [{"name": "a", "state": None}]}}) == {
        **bare, "status": {"containerStatuses": [{"name": "a"}]},
    }  # fmt: skip


def test_trimming_leaves_the_pod_alone_and_twice_is_as_once() -> None:
    pod = running_pod(1)
    before = copy.deepcopy(pod)
    once = trim(pod)
    assert (pod, trim(once)) == (before, once)


def test_a_heartbeat_changes_nothing_that_is_kept() -> None:
    one, other = running_pod(1), running_pod(1, resourceVersion="999999")
    other["status"]["conditions"][0]["lastProbeTime"] = "2026-11-23T12:00:00Z"
    assert same_but_for_the_version(trim(one), trim(other))
    other["status"]["phase"] = "Failed"
    assert not same_but_for_the_version(trim(one), trim(other))
    assert not same_but_for_the_version(trim(one), trim(running_pod(1, deletionTimestamp="2026-11-23T12:00:00Z")))


def test_a_pod_is_found_by_its_job_and_its_events_name_the_job(cache: Cache) -> None:
    for number in (1, 2):
        cache.change("ADDED", kept(number))
    cache.change("ADDED", kept(3, ownerReferences=[job_owner("other", "uid-of-other")]))
    assert [key for key, _, _ in cache.told] == [KEY, KEY, ("team", "other")]
    assert {pod["metadata"]["name"] for pod in cache.of("team", UID)} == {"pong-actor-1-x7k2p", "pong-actor-2-x7k2p"}
    assert (len(cache.of("team", "uid-of-other")), cache.of("another", UID), len(cache)) == (1, [], 3)
    assert set(cache.jobs()) == {KEY, ("team", "other")}
    for pod in [*cache.of("team", UID), *cache.of("team", "uid-of-other")]:
        cache.settle(pod)
        cache.change("DELETED", pod)
    assert (len(cache), list(cache.jobs())) == (0, [])


def test_each_change_is_told_once(cache: Cache) -> None:
    cache.change("ADDED", kept(1))
    cache.change("MODIFIED", kept(1, resourceVersion="2"))
    assert cache.heard() == ["ADDED 1"]
    (found,) = cache.of("team", UID)
    assert found["metadata"]["resourceVersion"] == "2", "though nothing was told"
    cache.change("MODIFIED", kept(1, deletionTimestamp="2026-11-23T12:00:00Z"))
    cache.change("DELETED", kept(1, deletionTimestamp="2026-11-23T12:00:00Z"))
    cache.change("DELETED", kept(1))
    assert cache.heard() == ["MODIFIED 1", "DELETED 1"]


def test_a_list_tells_what_was_missed(cache: Cache) -> None:
    later = [kept(2), kept(3, deletionTimestamp="2026-11-23T12:00:00Z"), kept(4)]
    for listed, told in (
        ([kept(1), kept(2), kept(3)], ["ADDED 1", "ADDED 2", "ADDED 3"]),
        (later, ["DELETED 1", "MODIFIED 3", "ADDED 4"]),
        (later, []),
    ):
        cache.replace(None, listed)
        assert cache.heard() == told


def test_a_list_of_one_namespace_says_nothing_of_another(cache: Cache) -> None:
    cache.replace("team", [kept(1)])
    cache.replace("another", [kept(2, namespace="another")])
    assert len(cache) == 2
    cache.replace("another", [])
    assert cache.heard() == ["ADDED 1", "ADDED 2", "DELETED 2"]


def test_another_pod_of_the_same_name_is_told_as_an_end_and_a_beginning(cache: Cache) -> None:
    cache.change("ADDED", kept(1))
    cache.replace(None, [kept(1, uid="another")])
    assert cache.heard() == ["ADDED 1", "DELETED 1", "ADDED 1"]
    assert [pod["metadata"]["uid"] for pod in cache.of("team", UID) if not is_gone(pod)] == ["another"]


@pytest.mark.parametrize(
    "owners",
    [
        [],
        [{**job_owner("pong", UID), "controller": False}],
        [{**job_owner("pong", UID), "kind": "Job", "apiVersion": "batch/v1"}],
        [{**job_owner("pong", UID), "apiVersion": "rljob.development/v1"}],
    ],
    ids=["none", "not the controller", "another kind", "another group"],
)
def test_a_pod_that_no_job_owns_is_none_of_ours(cache: Cache, owners: list[dict[str, Any]]) -> None:
    for odd in (running_pod(1, ownerReferences=owners), running_pod(3)):
        odd["spec"]["hostname"] = odd["spec"]["hostname"] if odd["metadata"]["ownerReferences"] == owners else ""
        cache.change("ADDED", cache.keep(odd))
    assert (len(cache), cache.told) == (0, []), "nor one that is no member's, as one that judges"
    cache.change("ADDED", kept(2))
    cache.change("MODIFIED", kept(2, ownerReferences=owners))
    assert (len(cache), cache.heard()) == (0, ["ADDED 2", "DELETED 2"])
    (disowned,) = cache.of("team", UID)
    assert (disowned["status"]["reason"], is_gone(disowned)) == ("Disowned", True), "its end, for its job"


def test_a_cached_pod_costs_little() -> None:
    """Pods with a sidecar, as they arrive: each parsed on its own, so that nothing is shared but by our doing."""
    count = 500
    raw = [
        json.dumps(running_pod(number, job=f"job-{number // 4}", job_uid=f"8a3f27f5-6a7d-43f7-8f8e-{number // 4:012d}"))
        for number in range(count)
    ]

    def bytes_a_pod() -> float:
        cache = PodCache(lambda key, kind, pod: None)
        gc.collect()
        tracemalloc.start()
        try:
            for each in raw:
                cache.change("ADDED", cache.keep(json.loads(each)))
            gc.collect()
            assert len(cache) == count
            return tracemalloc.get_traced_memory()[0] / count
        finally:
            tracemalloc.stop()

    # The interpreter's one table of interned strings may double in one of the two, which is megabytes and not the cache's.
    cost = min(bytes_a_pod(), bytes_a_pod())
    assert cost < MOST_BYTES_A_POD, f"{cost:.0f} bytes a pod"


def test_pods_are_found_by_the_name_of_their_job_whichever_object_had_it() -> None:
    cache, other = Cache(), "0b0b0b0b-0000-4000-8000-000000000000"
    first, second = kept(1), trim(running_pod(2, job_uid=other))
    for pod in (
        first,
        second,
        trim(running_pod(3, job="breakout", job_uid="b")),
        trim(running_pod(4, namespace="else")),
    ):
        cache.change("ADDED", pod)

    def found() -> set[str]:
        return {pod["metadata"]["uid"] for pod in cache.of_key(KEY)}

    assert found() == {first["metadata"]["uid"], second["metadata"]["uid"]}
    cache.settle(first)
    cache.change("DELETED", first)
    assert found() == {second["metadata"]["uid"]}
    cache.change("DELETED", second)
    cache.settle(*cache.of("team", other))
    assert found() == set()
    assert cache._uids.keys() == {("team", "breakout"), ("else", "pong")}, "nothing is kept of jobs that are gone"


def test_the_last_that_was_seen_of_a_pod_is_kept_until_it_is_settled() -> None:
    cache, namespace = Cache(), KEY[0]
    cache.replace(None, [kept(1), kept(2), kept(3)])
    ended = kept(1)
    ended["status"]["phase"] = "Succeeded"
    cache.change("DELETED", ended)
    cache.replace(None, [kept(3)])  # the end of 2 was missed
    cache.settle(kept(3))
    cache.change("DELETED", kept(3))
    assert cache.heard()[3:] == ["DELETED 1", "DELETED 2", "DELETED 3"]

    gone = cache.of(namespace, UID)
    assert all(map(is_gone, gone))
    assert [pod["status"]["phase"] for pod in gone] == ["Succeeded", "Failed"], (
        "one that was settled before it went leaves nothing"
    )
    assert ["deletionTimestamp" in pod["metadata"] for pod in gone] == [False, True]
    assert len(cache) == 0

    cache.replace(None, [kept(1, uid="another")])  # of the same name
    assert len(cache.of(namespace, UID)) == 3
    for pod in gone:
        cache.settle(pod)
    assert [pod["metadata"]["uid"] for pod in cache.of_key(KEY)] == ["another"]
    cache.change("MODIFIED", kept(1, uid="another", ownerReferences=[]))  # deleted with --cascade=orphan
    cache.settle(*cache.of_key(KEY))
    assert (cache.jobs(), cache.of_key(KEY)) == ((), [])


def child(name: str, job: str = "pong", namespace: str = "default") -> dict[str, Any]:
    owner = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "name": job, "uid": f"{job}-uid", "controller": True}
    about = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}-uid", "ownerReferences": [owner]}
    return {"metadata": about}


def test_what_goes_is_told_once_with_its_job_and_what_is_on_its_way_out_too() -> None:
    gone: list[tuple[tuple[str, str], str]] = []
    seen = ChildrenOfOneKind(lambda job, uid: gone.append((job, uid)), as_made=True)
    seen.replace(None, [seen.keep(child("a")), seen.keep(child("b", job="other"))])
    seen.change("MODIFIED", seen.keep(child("a")))
    assert gone == []
    leaving = child("a")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-23T12:00:00Z"  # a pod uses it
    for _ in range(2):
        seen.change("MODIFIED", seen.keep(leaving))
    assert gone == [(("default", "pong"), "default-a-uid")]
    for _ in range(2):
        seen.change("DELETED", seen.keep(leaving))
    assert gone == 2 * [(("default", "pong"), "default-a-uid")]
    seen.change("ADDED", seen.keep(leaving))
    anew = child("a")
    anew["metadata"]["uid"] = "another"
    seen.change("ADDED", seen.keep(anew))
    assert gone[2:] == 2 * [(("default", "pong"), "default-a-uid")], (
        "it is on its way out, and then another has its name"
    )


OURS = {"manager": "rljob-operator", "fieldsV1": {"f:data": {}}}


@pytest.mark.parametrize("writers", [[OURS, {"manager": "kubectl-edit"}], [{**OURS, "fieldsV1": {}}]])
def test_what_others_have_changed_or_removed_is_told_but_not_of_claims(writers: list[dict[str, Any]]) -> None:
    gone: list[str] = []
    for as_made in (True, False):
        seen = ChildrenOfOneKind(lambda job, uid: gone.append(uid), as_made=as_made)
        for number, by in enumerate(([OURS], [OURS], writers, writers)):
            made = child("a")
            made["metadata"]["managedFields"] = [{"time": f"{number if each == OURS else 0}", **each} for each in by]
            seen.change("MODIFIED", seen.keep(made))
    assert gone == ["default-a-uid"]


def test_what_went_while_nobody_watched_is_told_by_the_next_list_of_its_namespace() -> None:
    gone: list[tuple[tuple[str, str], str]] = []
    seen = ChildrenOfOneKind(lambda job, uid: gone.append((job, uid)), as_made=True)
    seen.replace("one", [seen.keep(child("a", namespace="one")), seen.keep(child("b", namespace="one"))])
    seen.replace("two", [seen.keep(child("c", namespace="two"))])
    seen.replace("one", [seen.keep(child("b", namespace="one"))])
    assert gone == [(("one", "pong"), "one-a-uid")]
    seen.replace("two", [])
    assert gone[1:] == [(("two", "pong"), "two-c-uid")]

"""What a manifest says of its pods wins: a podTemplate over all that no controller needs, mounts where there is room to write."""

import re
from dataclasses import replace
from typing import Any

import pytest
from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.others import only_reads, reader
from rljob_operator.kube.render.template import PodTemplateProblem
from rljob_operator.kube.render.volumes import checkpoints_are

from tests.unit.operator.kube.rendered import MEMBERS, SETTINGS, names_of, pod_of, with_section, worker


def patched(patch: dict[str, Any], role: Role = Role.ACTOR) -> dict[str, Any]:
    return pod_of(with_section(role, podTemplate=patch), "actor-0" if role is Role.ACTOR else "learner")


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"metadata": {"labels": {"rljob.dev/member": "actor-1"}}}, "metadata.labels[rljob.dev/member]"),
        ({"metadata": {"labels": {"$patch": "replace", "a": "b"}}}, "metadata.labels[app.kubernetes.io/managed-by]"),
        ({"metadata": {"labels": None}}, "metadata.labels["),
        ({"metadata": None}, "metadata.name: the controller"),
        ({"metadata": {"name": "mine"}}, "metadata.name"),
        ({"metadata": {"namespace": "elsewhere"}}, "metadata.namespace"),
        ({"metadata": {"ownerReferences": [{"uid": "uid-1", "$patch": "delete"}]}}, "metadata.ownerReferences"),
        ({"metadata": {"annotations": {"rljob.dev/revision": None}}}, "metadata.annotations[rljob.dev/revision]"),
        ({"spec": {"hostname": None}}, "spec.hostname: peers find"),
        ({"spec": {"subdomain": "other"}}, "spec.subdomain"),
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy: the controller itself"),
        ({"spec": {"containers": [{"name": "worker", "restartPolicy": "Always"}]}},
         "spec.containers[worker].restartPolicy: the controller itself"),
        ({"spec": {"containers": [{"name": "worker", "$patch": "delete"}]}}, "spec.containers: the container 'worker'"),
        ({"spec": None}, "spec.hostname: peers find"),
        ({"spec": {"$patch": "replace", "containers": []}}, "spec.hostname"),
        ({"spec": {"containers": [{"image": "a"}]}}, "spec.containers[0].name: required"),
        ({"kind": "Pod"}, "kind: allowed: metadata and spec"),
    ],
)  # fmt: skip
def test_what_would_lose_the_pod_is_refused_with_its_place(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(PodTemplateProblem, match=r"^spec\.actors\.podTemplate\..*" + re.escape(words)):
        patched(patch)


def test_what_is_the_users_is_changed() -> None:
    patch = {
        "metadata": {"labels": {"team": "rl"}, "annotations": {"karpenter.sh/do-not-disrupt": None}},
        "spec": {
            "automountServiceAccountToken": True,
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {"name": "worker", "command": ["nsys", "profile", "python"], "resources": {"requests": {"cpu": "7"}}},
                {"name": "beside", "image": "beside:1"},
            ],
            "volumes": [{"name": "rljob-tmp", "emptyDir": {"sizeLimit": "9Gi"}}],
        },
    }
    pod = patched(patch, Role.LEARNER)
    about, spec, container = pod["metadata"], pod["spec"], worker(pod)
    assert (about["labels"]["team"], "karpenter.sh/do-not-disrupt" in about["annotations"]) == ("rl", False)
    assert (spec["automountServiceAccountToken"], spec["terminationGracePeriodSeconds"]) == (True, 5)
    command, args = ["nsys", "profile", "python"], ["worker", "learner"]
    assert (container["command"], container["args"], container["resources"]["requests"]["cpu"]) == (command, args, "7")
    assert [each["name"] for each in spec["containers"]] == ["worker", "beside"]
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet", "its node's name server knows no member"
    assert {"name": "rljob-tmp", "emptyDir": {"sizeLimit": "9Gi"}} in spec["volumes"]


def test_a_label_of_the_jobs_own_gives_way() -> None:
    job = with_section(Role.ACTOR, podTemplate={"metadata": {"labels": {"team": "players", "floor": None}}})
    labelled = job.job.metadata.model_copy(update={"labels": {"team": "rl", "floor": "2"}})
    of_job = replace(job, job=job.job.model_copy(update={"metadata": labelled}))
    labels = pod_of(of_job, "actor-0")["metadata"]["labels"]
    assert (labels["team"], labels.get("floor")) == ("players", None)


def test_labels_written_again_as_they_are_change_nothing() -> None:
    assert patched({"metadata": {"labels": {"rljob.dev/role": "actor"}}}) == patched({})


def test_a_sidecar_of_a_shard_can_be_patched() -> None:
    job = with_section(Role.REPLAY, podTemplate={"spec": {"initContainers": [{"name": "redis", "image": "valkey:9"}]}})
    (redis,) = pod_of(job, "replay-0")["spec"]["initContainers"]
    assert (redis["image"], redis["restartPolicy"]) == ("valkey:9", "Always")


@pytest.mark.parametrize(
    "marks",
    [
        {"labels": {"scheduling.x-k8s.io/pod-group": "pong-replay"}},
        {"annotations": {"scheduling.k8s.io/group-name": "pong-replay"}},
    ],
    ids=["Coscheduling", "Volcano"],
)
@pytest.mark.parametrize("role", MEMBERS)
def test_marks_of_a_gang_scheduler_reach_every_pod_of_a_role(role: Role, marks: dict[str, Any]) -> None:
    pod = pod_of(with_section(role, podTemplate={"metadata": marks, "spec": {"schedulerName": "gangs"}}), MEMBERS[role])
    assert pod["spec"]["schedulerName"] == "gangs"
    for kind, wanted in marks.items():
        assert wanted.items() <= pod["metadata"][kind].items()


def mounting(role: Role, path: str, **source: Any) -> Owned:
    mount = {"name": "mine", "mountPath": path, "subPath": "a"}
    container = {"name": names.WORKER, "volumeMounts": [mount]}
    return with_section(
        role, podTemplate={"spec": {"volumes": [{"name": "mine", **source}], "containers": [container]}}
    )


@pytest.mark.parametrize("path", ["/dev/shm", "/tmp", "/tmp/", names.RUN_DIR])
@pytest.mark.parametrize("role", Role)
def test_a_users_mount_wins(role: Role, path: str) -> None:
    pod = pod_of(mounting(role, path, emptyDir={}), MEMBERS[role])
    places = [(each["mountPath"].rstrip("/"), each["name"]) for each in worker(pod)["volumeMounts"]]
    assert (path.rstrip("/"), "mine") in places
    assert len(dict(places)) == len(places), "an API server refuses a second one"
    assert {name for _, name in places} <= {each["name"] for each in pod["spec"]["volumes"]}


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ({"persistentVolumeClaim": {"claimName": "big"}}, "on claim big"),
        ({"nfs": {"server": "a", "path": "/b"}}, "in volume mine"),
        ({"emptyDir": {}}, ""),
    ],
)
def test_checkpoints_are_where_the_learners_run_folder_is(source: dict[str, Any], where: str) -> None:
    job = mounting(Role.LEARNER, names.RUN_DIR, **source)
    made = reader(job, SETTINGS, 10.0)["spec"]
    mount = {"name": "mine", "mountPath": names.RUN_DIR, "subPath": "a", "readOnly": True}
    assert checkpoints_are(job.job, SETTINGS) == where
    assert f"PersistentVolumeClaim/{names.claim(job.name, 'learner')}" not in names_of(job), "no pod would mount it"
    assert (made["volumes"], made["containers"][0]["volumeMounts"]) == ([{"name": "mine", **source}], [mount])


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({}, True),
        ({"hostNetwork": True}, False),
        ({"initContainers": []}, False),
        ({"automountServiceAccountToken": True}, False),
        ({"volumes": [{"name": "mine", "hostPath": {"path": "/"}}]}, False),
        ({"containers": [{"securityContext": {"privileged": True}}]}, False),
        ({"containers": 3}, False),
    ],
)
def test_a_noted_pod_may_do_no_more_than_read_its_claim(change: dict[str, Any], allowed: bool) -> None:
    made = reader(mounting(Role.LEARNER, names.RUN_DIR, persistentVolumeClaim={"claimName": "big"}), SETTINGS, 10.0)
    namespace = made["metadata"]["namespace"]
    noted = {**made, "spec": {**made["spec"], **change}}
    assert only_reads(noted, namespace) is allowed
    assert not only_reads(noted, f"not-{namespace}")

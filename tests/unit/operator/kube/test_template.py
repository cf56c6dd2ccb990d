"""A podTemplate changes everything but what the controller knows its pods by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rljob_operator.core.member import Role
from rljob_operator.kube.render.strategic_merge import PodTemplateProblem

from .rendered import MEMBERS, pod_of, with_section, worker


def patched(patch: dict[str, Any], role: Role = Role.ACTOR) -> dict[str, Any]:
    return pod_of(with_section(role, podTemplate=patch), "actor-0" if role is Role.ACTOR else "learner")


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"metadata": {"labels": {"rljob.dev/member": "actor-1"}}}, "metadata.labels[rljob.dev/member]"),
        ({"metadata": {"labels": {"$patch": "replace", "a": "b"}}}, "metadata.labels[app.kubernetes.io/managed-by]"),
        ({"metadata": {"labels": None}}, "metadata.labels["),
        ({"metadata": None}, "metadata: the controller"),
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
        ({"spec": None}, "spec: the pod needs one"),
        ({"spec": {"$patch": "replace", "containers": []}}, "spec.hostname"),
        ({"spec": {"containers": [{"image": "a"}]}}, "spec.containers[0].name: required"),
        ({"kind": "Pod"}, "kind: allowed: metadata and spec"),
    ],
)  # fmt: skip
def test_what_would_lose_the_pod_is_refused_with_its_place(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(PodTemplateProblem) as caught:
        patched(patch)
    assert str(caught.value).startswith("spec.actors.podTemplate.")
    assert words in str(caught.value)


def test_what_is_the_users_is_changed() -> None:
    patch = {
        "metadata": {"labels": {"team": "rl"}, "annotations": {"karpenter.sh/do-not-disrupt": None}},
        "spec": {
            "automountServiceAccountToken": True,
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {"name": "worker", "command": ["nsys", "profile", "python"], "resources": {"requests": {"cpu": "7"}}},
                {"name": "beside", "image": "beside:1"},
            ],
            "volumes": [{"name": "rljob-tmp", "emptyDir": {"sizeLimit": "9Gi"}}],
        },
    }
    pod = patched(patch, Role.LEARNER)
    assert pod["metadata"]["labels"]["team"] == "rl"
    assert "karpenter.sh/do-not-disrupt" not in pod["metadata"]["annotations"]
    assert pod["spec"]["automountServiceAccountToken"] is True
    assert worker(pod)["command"] == ["nsys", "profile", "python"]
    assert worker(pod)["args"] == ["worker", "learner"]
    assert worker(pod)["resources"]["requests"]["cpu"] == "7"
    assert [each["name"] for each in pod["spec"]["containers"]] == ["worker", "beside"]
    assert {"name": "rljob-tmp", "emptyDir": {"sizeLimit": "9Gi"}} in pod["spec"]["volumes"]


def test_a_label_of_the_jobs_own_gives_way() -> None:
    job = with_section(Role.ACTOR, podTemplate={"metadata": {"labels": {"team": "players", "floor": None}}})
    labelled = job.job.metadata.model_copy(update={"labels": {"team": "rl", "floor": "2"}})
    labels = pod_of(replace(job, job=job.job.model_copy(update={"metadata": labelled})), "actor-0")["metadata"][
        "labels"
    ]
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
    patch = {"metadata": marks, "spec": {"schedulerName": "gangs"}}
    pod = pod_of(with_section(role, podTemplate=patch), MEMBERS[role])
    assert pod["spec"]["schedulerName"] == "gangs"
    for kind, wanted in marks.items():
        assert wanted.items() <= pod["metadata"][kind].items()

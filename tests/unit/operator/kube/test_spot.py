"""What ``spot: true`` adds to a pod: tolerations for tainted nodes, preferences for labelled ones, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from rljob_operator.kube.render.spot import CLOUDS, SpotMarks, on_spot_nodes

MARKS = {  # a spot node as each cloud makes it: its taint, if it has one, and its label
    "GKE": (("cloud.google.com/gke-spot", "true"), ("cloud.google.com/gke-spot", "true")),
    "AKS": (("kubernetes.azure.com/scalesetpriority", "spot"), ("kubernetes.azure.com/scalesetpriority", "spot")),
    "EKS": (None, ("eks.amazonaws.com/capacityType", "SPOT")),
    "Karpenter": (None, ("karpenter.sh/capacity-type", "spot")),
}
GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}


def tolerated(pod: dict[str, Any]) -> set[tuple[str, str]]:
    return {(each["key"], each["value"]) for each in pod["tolerations"] if each.get("effect") == "NoSchedule"}


def preferred(pod: dict[str, Any]) -> list[dict[str, Any]]:
    terms: list[dict[str, Any]] = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    return terms


@pytest.mark.parametrize("cloud", MARKS)
def test_spot_nodes_of_each_cloud_are_reached_and_preferred(cloud: str) -> None:
    taint, label = MARKS[cloud]
    pod = on_spot_nodes({"containers": []})
    assert taint is None or taint in tolerated(pod)
    (term,) = [
        each["preference"] for each in preferred(pod) if each["preference"]["matchExpressions"][0]["key"] == label[0]
    ]
    assert term["matchExpressions"] == [{"key": label[0], "operator": "In", "values": [label[1]]}]


def test_no_other_cloud_is_in_it() -> None:
    assert set(CLOUDS.taints) == {taint for taint, _ in MARKS.values() if taint}
    assert list(CLOUDS.labels) == [label for _, label in MARKS.values()]


def test_what_the_job_says_itself_stays() -> None:
    mine = {"weight": 100, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "arch", "operator": "Exists"}]}]}
    pod = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [GPU],
        "affinity": {
            "podAntiAffinity": {"a": 1},
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": required,
                "preferredDuringSchedulingIgnoredDuringExecution": [mine],
            },
        },
    }
    before = copy.deepcopy(pod)
    changed = on_spot_nodes(pod)
    assert pod == before, "a copy"
    assert (changed["tolerations"][0], changed["nodeSelector"]) == (GPU, {"disk": "ssd"})
    assert changed["affinity"]["podAntiAffinity"] == {"a": 1}
    assert changed["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == required
    assert (preferred(changed)[0], len(preferred(changed))) == (mine, 1 + len(CLOUDS.labels))


def test_a_toleration_that_is_there_already_stays_alone() -> None:
    gke = {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    assert on_spot_nodes({"tolerations": [gke]})["tolerations"].count(gke) == 1


@pytest.mark.parametrize("affinity", [None, {}, {"nodeAffinity": None}])
def test_a_null_is_nothing(affinity: dict[str, Any] | None) -> None:
    assert len(preferred(on_spot_nodes({"affinity": affinity, "tolerations": None}))) == len(CLOUDS.labels)


@pytest.mark.parametrize("affinity", ["spot", {"nodeAffinity": []}])
def test_what_is_no_affinity_stays_for_the_server_to_refuse(affinity: Any) -> None:
    assert on_spot_nodes({"affinity": affinity})["affinity"] == affinity


def test_a_cluster_with_marks_of_its_own() -> None:
    pod = on_spot_nodes({}, SpotMarks(taints=(("rljob.dev/spot", "true"),), labels=(("rljob.dev/spot", "true"),)))
    assert tolerated(pod) == {("rljob.dev/spot", "true")}
    assert [term["preference"]["matchExpressions"][0]["key"] for term in preferred(pod)] == ["rljob.dev/spot"]

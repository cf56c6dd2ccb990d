"""Where pods go: devices are asked for and their nodes reached, and a pod that asks for none keeps off them."""

from __future__ import annotations

import copy
from typing import Any, Literal

import pytest
from rljob_operator.core.member import Role
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.spot import SpotMarks

from .rendered import CENTRAL, MEMBERS, SETTINGS, owned, pod_of, with_section, worker

GPU = "spec.learner.accelerator.count=1"
OTHER = "spec.learner.accelerator={count: 2, resourceName: example.com/npu}"


def preferences(spec: dict[str, Any]) -> list[str]:
    """The keys that nodes are preferred by, with a ! where they should be absent."""
    terms = spec.get("affinity", {}).get("nodeAffinity", {}).get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return [
        ("!" if each["operator"] == "DoesNotExist" else "") + each["key"]
        for term in terms
        for each in term["preference"]["matchExpressions"]
    ]


def test_a_learner_that_asks_for_a_device_gets_it_and_the_toleration_for_its_nodes() -> None:
    pod = pod_of(owned(GPU, "spec.learner.resources={requests: {cpu: 4}, limits: {memory: 9Gi}}"), "learner")
    assert worker(pod)["resources"] == {"requests": {"cpu": "4"}, "limits": {"memory": "9Gi", "nvidia.com/gpu": "1"}}
    assert pod["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert preferences(pod["spec"]) == []


def test_an_inference_server_with_a_device_goes_where_a_learner_with_one_goes() -> None:
    pod = pod_of(owned(*CENTRAL, "spec.inference.accelerator.count=1"), "inference-0")
    assert worker(pod)["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert pod["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert preferences(pod["spec"]) == []


def test_a_device_goes_by_the_name_that_it_has() -> None:
    job = owned("spec.learner.accelerator={count: 1, resourceName: nvidia.com/mig-1g.5gb}")
    assert worker(pod_of(job, "learner"))["resources"]["limits"] == {"nvidia.com/mig-1g.5gb": "1"}


@pytest.mark.parametrize("count", ["0", "null"])
def test_a_learner_that_asks_for_none_is_any_cpu_role(count: str) -> None:
    pod = pod_of(owned(f"spec.learner.accelerator.count={count}"), "learner")
    assert "limits" not in worker(pod)["resources"]
    assert preferences(pod["spec"]) == [f"!{label}" for label in SETTINGS.gpu_node_labels]
    assert "tolerations" not in pod["spec"]


def test_a_toleration_that_the_manifest_has_is_not_there_twice() -> None:
    mine = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    job = with_section(Role.LEARNER, tolerations=[mine], accelerator={"count": 1})
    assert pod_of(job, "learner")["spec"]["tolerations"] == [mine]


@pytest.mark.parametrize("role", [Role.REPLAY, Role.INFERENCE, Role.ACTOR, Role.EVALUATOR])
def test_cpu_roles_prefer_other_nodes_whatever_the_learner_asks_for(role: Role) -> None:
    spec = pod_of(owned(GPU, *CENTRAL), MEMBERS[role])["spec"]
    assert "!nvidia.com/gpu.present" in preferences(spec)
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in spec["affinity"]["nodeAffinity"]


@pytest.mark.parametrize(
    "fields",
    [
        {"nodeSelector": {"nvidia.com/gpu.present": "true"}},
        {"resources": {"limits": {"nvidia.com/gpu": "1"}}},
    ],
)
@pytest.mark.parametrize("mode", ["Preferred", "Required"])
def test_a_role_that_the_manifest_sends_to_gpu_nodes_goes_there(
    fields: dict[str, Any], mode: Literal["Preferred", "Required"]
) -> None:
    settings = Settings(image="rl:1", keep_off_gpu_nodes=mode)
    assert "affinity" not in pod_of(with_section(Role.INFERENCE, **fields), "inference-0", settings)["spec"]


def test_required_is_added_to_each_of_the_terms_that_are_alternatives() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"matchFields": []}]
    given = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    settings = Settings(image="rl:1", keep_off_gpu_nodes="Required", gpu_node_labels=("gpu",))
    off = {"key": "gpu", "operator": "DoesNotExist"}
    before = copy.deepcopy(given)
    job = with_section(Role.ACTOR, affinity=given)
    found = pod_of(job, "actor-0", settings)["spec"]["affinity"]["nodeAffinity"]
    assert given == before
    assert found["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "zone", "operator": "Exists"}, off]},
        {"matchFields": [], "matchExpressions": [off]},
    ]
    alone = pod_of(owned(), "actor-0", settings)["spec"]["affinity"]["nodeAffinity"]
    assert alone["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [{"matchExpressions": [off]}]


def test_what_is_no_affinity_stays_for_the_server_to_refuse() -> None:
    job = with_section(Role.ACTOR, affinity={"nodeAffinity": []})
    assert pod_of(job, "actor-0")["spec"]["affinity"] == {"nodeAffinity": []}


def test_spot_is_for_actors_and_by_the_operators_table() -> None:
    marks = SpotMarks(taints=(("spot", "true"),), labels=(("spot", "true"),))
    settings = Settings(image="rl:1", spot=marks, gpu_node_labels=("gpu",))
    job = owned("spec.actors.spot=true", "spec.actors.tolerations=[{key: team, operator: Exists}]")
    spec = pod_of(job, "actor-0", settings)["spec"]
    assert [each["key"] for each in spec["tolerations"]] == ["team", "spot"]
    assert preferences(spec) == ["spot", "!gpu"]
    assert "tolerations" not in pod_of(job, "learner", settings)["spec"]


def test_pods_of_a_role_are_spread_among_themselves() -> None:
    spec = pod_of(owned("spec.actors.topologySpread=Preferred"), "actor-0")["spec"]
    (rule,) = spec["topologySpreadConstraints"]
    assert rule["whenUnsatisfiable"] == "ScheduleAnyway"
    assert rule["labelSelector"]["matchLabels"]["rljob.dev/role"] == "actor"
    assert "topologySpreadConstraints" not in pod_of(owned(), "actor-0")["spec"]


def test_more_than_one_device_of_another_maker() -> None:
    """The manifest's own rule says how many; what it lets through is asked for."""
    spec = pod_of(owned(OTHER.replace("count: 2", "count: 1")), "learner")
    assert worker(spec)["resources"]["limits"] == {"example.com/npu": "1"}
    assert spec["spec"]["tolerations"][0]["key"] == "example.com/npu"


AMD64 = Settings(image="rl:1", architectures=("amd64",), keep_off_gpu_nodes="None")
ON_AMD64 = [
    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
]


def required(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The expressions of each term by which nodes are required."""
    of_nodes = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return [term["matchExpressions"] for term in terms]


@pytest.mark.parametrize("role", Role)
def test_the_operators_images_go_to_nodes_that_run_them(role: Role) -> None:
    assert required(pod_of(owned(*CENTRAL), MEMBERS[role], AMD64)["spec"]) == [ON_AMD64]
    assert required(pod_of(owned(*CENTRAL), MEMBERS[role])["spec"]) == [], "of which it is not known"
    section = "actors" if role is Role.ACTOR else str(role)
    for own in (
        "spec.image=mine:1",
        f"spec.{section}.image=mine:1",
        f"spec.{section}.nodeSelector[kubernetes.io/arch]=arm64",
    ):
        assert required(pod_of(owned(*CENTRAL, own), MEMBERS[role], AMD64)["spec"]) == [], own


def test_what_a_job_requires_of_nodes_is_required_beside_it() -> None:
    mine = {"key": "zone", "operator": "In", "values": ["a"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [mine]}, {"matchExpressions": [mine]}]
            }
        }
    }
    job = with_section(Role.ACTOR, affinity=affinity)
    for _ in range(2):  # the manifest is not changed by it
        assert required(pod_of(job, "actor-0", AMD64)["spec"]) == [[mine, *ON_AMD64], [mine, *ON_AMD64]]
    both = Settings(image="rl:1", architectures=("amd64",), keep_off_gpu_nodes="Required", gpu_node_labels=("gpu",))
    assert required(pod_of(job, "learner", both)["spec"]) == [[*ON_AMD64, {"key": "gpu", "operator": "DoesNotExist"}]]

"""Where pods go: to nodes with the devices that they ask for, off those with others, and to spot nodes of each cloud."""

import copy
from typing import Any, Literal

import pytest
from rljob_operator.core.member import Role
from rljob_operator.kube.render.pod import on_spot_nodes
from rljob_operator.kube.render.settings import CLOUDS, Settings, SpotMarks

from tests.unit.operator.kube.rendered import CENTRAL, MEMBERS, SETTINGS, owned, pod_of, with_section, worker

GPU = "spec.learner.accelerator.count=1"


def preferences(spec: dict[str, Any]) -> list[str]:
    """The keys that nodes are preferred by, with a ! where they should be absent."""
    terms = spec.get("affinity", {}).get("nodeAffinity", {}).get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return [
        ("!" if each["operator"] == "DoesNotExist" else "") + each["key"]
        for term in terms
        for each in term["preference"]["matchExpressions"]
    ]


@pytest.mark.parametrize(
    ("sets", "member", "device", "more"),
    [
        (
            (GPU, "spec.learner.resources={requests: {cpu: 4}, limits: {memory: 9Gi}}"),
            "learner",
            "nvidia.com/gpu",
            {"memory": "9Gi"},
        ),
        ((*CENTRAL, "spec.inference.accelerator.count=1"), "inference-0", "nvidia.com/gpu", {}),
        (
            ("spec.learner.accelerator={count: 1, resourceName: nvidia.com/mig-1g.5gb}",),
            "learner",
            "nvidia.com/mig-1g.5gb",
            {},
        ),
        # The manifest's own rule says how many; what it lets through is asked for.
        (("spec.learner.accelerator={count: 1, resourceName: example.com/npu}",), "learner", "example.com/npu", {}),
    ],
)
def test_a_role_that_asks_for_a_device_gets_it_and_the_toleration_for_its_nodes(
    sets: tuple[str, ...], member: str, device: str, more: dict[str, str]
) -> None:
    pod = pod_of(owned(*sets), member)
    assert worker(pod)["resources"]["limits"] == {**more, device: "1"}
    assert pod["spec"]["tolerations"] == [{"key": device, "operator": "Exists", "effect": "NoSchedule"}]
    assert preferences(pod["spec"]) == []


@pytest.mark.parametrize("count", ["0", "null"])
def test_a_learner_that_asks_for_none_is_any_cpu_role(count: str) -> None:
    pod = pod_of(owned(f"spec.learner.accelerator.count={count}"), "learner")
    assert preferences(pod["spec"]) == [f"!{label}" for label in SETTINGS.gpu_node_labels]
    assert ("limits" in worker(pod)["resources"], "tolerations" in pod["spec"]) == (False, False)


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
    found, alone = (
        pod_of(each, "actor-0", settings)["spec"]["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]["nodeSelectorTerms"]
        for each in (with_section(Role.ACTOR, podTemplate={"spec": {"affinity": given}}), owned())
    )
    assert given == before
    assert found == [
        {"matchExpressions": [{"key": "zone", "operator": "Exists"}, off]},
        {"matchFields": [], "matchExpressions": [off]},
    ]
    assert alone == [{"matchExpressions": [off]}]


def test_what_is_no_affinity_stays_for_the_server_to_refuse() -> None:
    job = with_section(Role.ACTOR, podTemplate={"spec": {"affinity": {"nodeAffinity": []}}})
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
    (rule,) = pod_of(owned("spec.actors.topologySpread=Preferred"), "actor-0")["spec"]["topologySpreadConstraints"]
    labels = rule["labelSelector"]["matchLabels"]
    assert (rule["whenUnsatisfiable"], labels["rljob.dev/role"]) == ("ScheduleAnyway", "actor")
    assert "topologySpreadConstraints" not in pod_of(owned(), "actor-0")["spec"]


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
    job = with_section(Role.ACTOR, podTemplate={"spec": {"affinity": affinity}})
    for _ in range(2):  # the manifest is not changed by it
        assert required(pod_of(job, "actor-0", AMD64)["spec"]) == [[mine, *ON_AMD64], [mine, *ON_AMD64]]
    both = Settings(image="rl:1", architectures=("amd64",), keep_off_gpu_nodes="Required", gpu_node_labels=("gpu",))
    assert required(pod_of(job, "learner", both)["spec"]) == [[*ON_AMD64, {"key": "gpu", "operator": "DoesNotExist"}]]


MARKS = {  # a spot node as each cloud makes it: its taint, if it has one, and its label
    "GKE": (("cloud.google.com/gke-spot", "true"), ("cloud.google.com/gke-spot", "true")),
    "AKS": (("kubernetes.azure.com/scalesetpriority", "spot"), ("kubernetes.azure.com/scalesetpriority", "spot")),
    "EKS": (None, ("eks.amazonaws.com/capacityType", "SPOT")),
    "Karpenter": (None, ("karpenter.sh/capacity-type", "spot")),
}
TOLERATED = {"key": "nvidia.com/gpu", "operator": "Exists"}


def tolerated(pod: dict[str, Any]) -> set[tuple[str, str]]:
    return {(each["key"], each["value"]) for each in pod["tolerations"] if each.get("effect") == "NoSchedule"}


def preferred(pod: dict[str, Any]) -> list[dict[str, Any]]:
    terms: list[dict[str, Any]] = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    return terms


@pytest.mark.parametrize("cloud", MARKS)
def test_spot_nodes_of_each_cloud_are_reached_and_preferred(cloud: str) -> None:
    taint, label = MARKS[cloud]
    pod = on_spot_nodes({"containers": []})
    taint, label = MARKS[cloud]
    pod = on_spot_nodes({"containers": []})
    assert taint is None or taint in tolerated(pod)
    terms = [each["preference"]["matchExpressions"] for each in preferred(pod)]
    assert [each for each in terms if each[0]["key"] == label[0]] == [
        [{"key": label[0], "operator": "In", "values": [label[1]]}]
    ]


def test_no_other_cloud_is_in_it() -> None:
    assert set(CLOUDS.taints) == {taint for taint, _ in MARKS.values() if taint}
    assert list(CLOUDS.labels) == [label for _, label in MARKS.values()]


def test_what_the_job_says_itself_stays() -> None:
    mine = {"weight": 100, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "arch", "operator": "Exists"}]}]}
    pod = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [TOLERATED],
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
    affinity = changed["affinity"]
    assert pod == before, "a copy"
    assert (changed["tolerations"][0], changed["nodeSelector"]) == (TOLERATED, {"disk": "ssd"})
    assert affinity["podAntiAffinity"] == {"a": 1}
    assert affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == required
    assert (preferred(changed)[0], len(preferred(changed))) == (mine, 1 + len(CLOUDS.labels))


def test_a_toleration_that_is_there_already_stays_alone() -> None:
    gke = {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    assert on_spot_nodes({"tolerations": [gke]})["tolerations"].count(gke) == 1


@pytest.mark.parametrize("affinity", [None, {}, {"nodeAffinity": None}])
def test_a_null_is_nothing(affinity: dict[str, Any] | None) -> None:
    assert len(preferred(on_spot_nodes({"affinity": affinity, "tolerations": None}))) == len(CLOUDS.labels)


@pytest.mark.parametrize("affinity", ["spot", {"nodeAffinity": []}])
def test_spot_leaves_what_is_no_affinity_for_the_server_to_refuse(affinity: Any) -> None:
    assert on_spot_nodes({"affinity": affinity})["affinity"] == affinity


def test_a_cluster_with_marks_of_its_own() -> None:
    pod = on_spot_nodes({}, SpotMarks(taints=(("rljob.dev/spot", "true"),), labels=(("rljob.dev/spot", "true"),)))
    assert tolerated(pod) == {("rljob.dev/spot", "true")}
    assert [term["preference"]["matchExpressions"][0]["key"] for term in preferred(pod)] == ["rljob.dev/spot"]

"""Every value of the chart does what its description says, and without it the objects are as before."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from rljob_operator.kube.process import rbac

from tests.support.chart import CHART, NAMESPACE, RELEASE, Chart, Object, at, only

NAME = f"{RELEASE}-rljob-operator"
POD = "spec.template.spec"
CONTAINER = f"{POD}.containers.0"
OF_OTHERS = ("monitoring",)
"""Blocks with tests of their own."""

Case = tuple[str, Any, str, str, Any]
OPTIONS: list[Case] = [
    # value, what is given, kind of the object that it changes, where, and what is there then
    ("nameOverride", "op", "Deployment", "metadata.name", f"{RELEASE}-op"),
    ("fullnameOverride", "op", "Deployment", "metadata.name", "op"),
    ("namespaceOverride", "elsewhere", "Deployment", "metadata.namespace", "elsewhere"),
    ("commonLabels", {"team": "rl"}, "ServiceAccount", "metadata.labels.team", "rl"),
    ("image.registry", "r.example.com/a", "Deployment", f"{CONTAINER}.image", "r.example.com/a/rljob-operator:0.1.0"),
    ("image.repository", "r.example.com:5000/op", "Deployment", f"{CONTAINER}.image", "r.example.com:5000/op:0.1.0"),
    ("image.tag", "1.2", "Deployment", f"{CONTAINER}.image", "rljob-operator:1.2"),
    ("image.digest", "sha256:" + "a" * 64, "Deployment", f"{CONTAINER}.image", "rljob-operator@sha256:" + "a" * 64),
    ("image.pullPolicy", "Always", "Deployment", f"{CONTAINER}.imagePullPolicy", "Always"),
    ("imagePullSecrets", [{"name": "pull"}], "Deployment", f"{POD}.imagePullSecrets.0.name", "pull"),
    ("crds.keep", False, "CustomResourceDefinition/rlexperiments.rljob.dev", "metadata.annotations", None),
    ("replicas", 3, "Deployment", "spec.replicas", 3),
    ("workers", 4, "Deployment", f"{CONTAINER}.args.4", "--workers=4"),
    ("logFormat", "Plain", "Deployment", f"{CONTAINER}.args.5", "--plain-logs"),
    ("port", 9000, "Deployment", f"{CONTAINER}.ports.0.containerPort", 9000),
    ("watchNamespaces", ["team-a"], "Deployment", f"{CONTAINER}.args.3", "--namespace=team-a"),
    ("serviceAccount.name", "robot", "ServiceAccount", "metadata.name", "robot"),
    ("serviceAccount.annotations", {"a": "b"}, "ServiceAccount", "metadata.annotations.a", "b"),
    ("service.type", "NodePort", "Service", "spec.type", "NodePort"),
    ("service.port", 80, "Service", "spec.ports.0.port", 80),
    ("service.labels", {"a": "b"}, "Service", "metadata.labels.a", "b"),
    ("service.annotations", {"a": "b"}, "Service", "metadata.annotations.a", "b"),
    ("podDisruptionBudget.maxUnavailable", "50%", "PodDisruptionBudget", "spec.maxUnavailable", "50%"),
    ("resources", {"limits": {"memory": "1Gi"}}, "Deployment", f"{CONTAINER}.resources.limits.memory", "1Gi"),
    ("podSecurityContext", {"runAsUser": 7}, "Deployment", f"{POD}.securityContext.runAsUser", 7),
    ("securityContext", {"privileged": False}, "Deployment", f"{CONTAINER}.securityContext.privileged", False),
    ("livenessProbe", {"periodSeconds": 33}, "Deployment", f"{CONTAINER}.livenessProbe.periodSeconds", 33),
    ("readinessProbe", {"periodSeconds": 33}, "Deployment", f"{CONTAINER}.readinessProbe.periodSeconds", 33),
    ("terminationGracePeriodSeconds", 9, "Deployment", f"{POD}.terminationGracePeriodSeconds", 9),
    ("strategy", {"type": "Recreate", "rollingUpdate": None}, "Deployment", "spec.strategy", {"type": "Recreate"}),
    ("revisionHistoryLimit", 1, "Deployment", "spec.revisionHistoryLimit", 1),
    ("priorityClassName", "high", "Deployment", f"{POD}.priorityClassName", "high"),
    ("nodeSelector", {"a": "b"}, "Deployment", f"{POD}.nodeSelector.a", "b"),
    ("tolerations", [{"operator": "Exists"}], "Deployment", f"{POD}.tolerations.0.operator", "Exists"),
    ("affinity", {"nodeAffinity": {"a": 1}}, "Deployment", f"{POD}.affinity.nodeAffinity.a", 1),
    ("topologySpreadConstraints", [{"maxSkew": 2}], "Deployment", f"{POD}.topologySpreadConstraints", [{"maxSkew": 2}]),
    ("annotations", {"a": "b"}, "Deployment", "metadata.annotations.a", "b"),
    ("podAnnotations", {"a": "b"}, "Deployment", "spec.template.metadata.annotations.a", "b"),
    ("podLabels", {"a": "b"}, "Deployment", "spec.template.metadata.labels.a", "b"),
    ("extraArgs", ["--lease-namespace=x"], "Deployment", f"{CONTAINER}.args.6", "--lease-namespace=x"),
    ("extraEnv", [{"name": "A", "value": "b"}], "Deployment", f"{CONTAINER}.env.0.value", "b"),
    ("extraEnvFrom", [{"secretRef": {"name": "s"}}], "Deployment", f"{CONTAINER}.envFrom.0.secretRef.name", "s"),
    ("extraVolumes", [{"name": "v", "emptyDir": {}}], "Deployment", f"{POD}.volumes.2.name", "v"),
    ("extraVolumeMounts", [{"name": "v", "mountPath": "/v"}], "Deployment", f"{CONTAINER}.volumeMounts.2.mountPath", "/v"),
    ("extraObjects", [{"kind": "Secret", "metadata": {"name": "{{ .Release.Name }}"}}], "Secret", "metadata.name", RELEASE),
]  # fmt: skip
SWITCHES: list[tuple[str, bool, set[str]]] = [
    # value, what it is unless given, the objects that are there only where it is true
    ("crds.enabled", True, {f"CustomResourceDefinition/{name}.rljob.dev" for name in ("rljobs", "rlexperiments")}),
    ("rbac.aggregate", True, {f"ClusterRole/rljobs-{role}" for role in ("view", "edit", "admin")}),
    ("serviceAccount.create", True, {f"ServiceAccount/{NAME}"}),
    ("podDisruptionBudget.enabled", True, {f"PodDisruptionBudget/{NAME}"}),
    ("networkPolicy.enabled", False, {f"NetworkPolicy/{NAME}"}),
    ("flowSchemas", True, {f"FlowSchema/{NAME}-lease", f"FlowSchema/{NAME}-jobs"}),
    ("podPolicy.enabled", False, {f"ValidatingAdmissionPolicy{kind}/{NAME}-pods" for kind in ("", "Binding")}),
    ("priorityClass.create", True, {f"PriorityClass/{NAME}"}),
    ("rbac.create", True, {
        "Role/rljob-operator-leader", "RoleBinding/rljob-operator-leader", "ClusterRole/rljob-operator",
        "ClusterRoleBinding/rljob-operator", *(f"ClusterRole/rljobs-{role}" for role in ("view", "edit", "admin")),
    }),
]  # fmt: skip
WITHOUT_OBJECTS = {"enabled", "conflictCheck", "config", "podPolicy.namespaceSelector", "podPolicy.serviceAccounts"}
"""Values whose effect is tried in tests below and on a real API server."""
NETWORK: list[tuple[str, Any, str, Any]] = [
    ("apiServerPorts", [6443], "spec.egress.1.ports", [{"protocol": "TCP", "port": 6443}]),
    ("learnerPorts", [9191], "spec.egress.2.ports", [{"protocol": "TCP", "port": 9191}]),
    ("metricsFrom", [{"podSelector": {}}], "spec.ingress.0.from", [{"podSelector": {}}]),
    ("extraEgress", [{"to": []}], "spec.egress.3", {"to": []}),
]


def nested(path: str, value: Any) -> dict[str, Any]:
    for step in reversed(path.split(".")):
        value = {step: value}
    return dict(value)


def names(objects: list[Object]) -> set[str]:
    return {f"{each['kind']}/{each['metadata']['name']}" for each in objects}


def leaves(values: dict[str, Any], path: str = "") -> Iterator[str]:
    """Every value that has a description: those below blocks that have none themselves."""
    blocks = {"image", "crds", "rbac", "serviceAccount", "service", "podDisruptionBudget", "networkPolicy",
              "podPolicy", "priorityClass"}  # fmt: skip
    for name, value in values.items():
        if name in blocks:
            yield from leaves(value, f"{name}.")
        elif name not in OF_OTHERS:
            yield f"{path}{name}"


@pytest.fixture(scope="module")
def default(chart: Chart) -> list[Object]:
    return chart.render()


@pytest.mark.parametrize(("value", "given", "kind", "path", "expected"), OPTIONS, ids=[case[0] for case in OPTIONS])
def test_an_option(
    chart: Chart, default: list[Object], value: str, given: Any, kind: str, path: str, expected: Any
) -> None:
    assert at(only(chart.render(nested(value, given)), *kind.split("/")), path) == expected
    before = [each for each in default if each["kind"] == kind.split("/")[0]]
    assert not before or at(before[0], path) != expected


@pytest.mark.parametrize(("value", "usual", "objects"), SWITCHES, ids=[case[0] for case in SWITCHES])
def test_a_switch(chart: Chart, default: list[Object], value: str, usual: bool, objects: set[str]) -> None:
    needed = {"serviceAccount": {"create": False, "name": "robot"}} if value == "serviceAccount.create" else {}
    other = chart.render(needed or nested(value, not usual))
    with_it, without_it = (names(default), names(other)) if usual else (names(other), names(default))
    assert with_it - without_it == objects
    assert not without_it - with_it


@pytest.mark.parametrize(("value", "given", "path", "expected"), NETWORK, ids=[case[0] for case in NETWORK])
def test_a_rule_of_the_network_policy(chart: Chart, value: str, given: Any, path: str, expected: Any) -> None:
    def policy(**more: Any) -> Object:
        return only(chart.render({"networkPolicy": {"enabled": True, **more}}), "NetworkPolicy")

    assert at(policy(**{value: given}), path) == expected
    assert at(policy(), path) != expected


def test_a_priority_of_the_operators_own(chart: Chart) -> None:
    def of_pods(**values: Any) -> Any:
        return at(only(chart.render(values), "Deployment"), f"{POD}.priorityClassName")

    assert of_pods() == NAME
    assert of_pods(priorityClass={"create": False}) is None
    assert of_pods(watchNamespaces=["team-a"]) is None, "that is made without rights in the cluster"
    assert not [each for each in chart.render({"watchNamespaces": ["team-a"]}) if each["kind"] == "PriorityClass"]
    named = {"name": "operators", "value": 12345678}
    assert of_pods(priorityClass=named) == "operators"
    assert of_pods(priorityClass=named, priorityClassName="high") == "high", "one that is there wins"
    made = only(chart.render({"priorityClass": named}), "PriorityClass")
    assert (made["metadata"]["name"], made["value"], made["globalDefault"]) == ("operators", 12345678, False)


@pytest.mark.parametrize(("watched", "more"), [([], ("Cluster",)), (["team-a"], ())])
def test_rights_to_ask_kueue_only_where_it_is_asked(
    chart: Chart, watched: list[str], more: tuple[rbac.Where, ...]
) -> None:
    def granted(**values: Any) -> Any:
        kind = "Role" if watched else "ClusterRole"
        return only(chart.render({"watchNamespaces": watched, **values}), kind, "rljob-operator")["rules"]

    without = rbac.rules("Jobs", *more)
    queue: tuple[rbac.Where, ...] = ("Queue", "QueueCluster") if more else ("Queue",)
    assert granted() == granted(config={"kueue": {"enabled": False}}) == without
    assert granted(config={"kueue": {"enabled": True}}) == [*without, *rbac.rules(*queue)]


def test_users_of_single_namespaces_have_roles_there(chart: Chart) -> None:
    robot = {"kind": "ServiceAccount", "name": "robot", "namespace": "team-a"}
    watched = {"watchNamespaces": ["team-a", "team-b"]}

    def of_users(**rbac: Any) -> set[tuple[str, str, str]]:
        made = [
            each for each in chart.render({**watched, "rbac": rbac}) if each["metadata"]["name"].startswith("rljobs-")
        ]
        return {(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]) for each in made}

    roles = {("Role", where, f"rljobs-{role}") for where in watched["watchNamespaces"] for role in ("view", "edit")}
    assert of_users() == roles
    assert not of_users(aggregate=False)
    assert of_users(editors=[robot]) - roles == {
        ("RoleBinding", where, "rljobs-edit") for where in watched["watchNamespaces"]
    }
    assert of_users(viewers=[robot]) - roles == {
        ("RoleBinding", where, "rljobs-view") for where in watched["watchNamespaces"]
    }
    bound = chart.render({**watched, "rbac": {"editors": [robot]}})
    binding = next(
        each for each in bound if each["kind"] == "RoleBinding" and each["metadata"]["name"] == "rljobs-edit"
    )
    assert (binding["subjects"], binding["roleRef"]["kind"]) == ([robot], "Role")
    (edit,) = [
        r
        for r in bound
        if (r["kind"], r["metadata"]["name"], r["metadata"].get("namespace")) == ("Role", "rljobs-edit", "team-b")
    ]
    assert {"create", "delete", "get"} <= set(edit["rules"][0]["verbs"])


def test_an_operator_of_single_namespaces_may_be_let_read_nodes(chart: Chart) -> None:
    watched = {"watchNamespaces": ["team-a"]}
    assert not [each for each in chart.render(watched) if each["kind"].startswith("ClusterRole")]
    objects = chart.render({**watched, "rbac": {"clusterReads": True}})
    assert only(objects, "ClusterRole", "rljob-operator-reads-for-team-a")["rules"] == rbac.rules("Cluster")
    assert only(objects, "ClusterRoleBinding")["subjects"][0]["kind"] == "ServiceAccount"
    with_kueue = chart.render({**watched, "rbac": {"clusterReads": True}, "config": {"kueue": {"enabled": True}}})
    assert only(with_kueue, "ClusterRole")["rules"] == rbac.rules("Cluster", "QueueCluster")


def test_every_value_has_its_test() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    tried = (
        {case[0] for case in [*OPTIONS, *SWITCHES]}
        | {f"networkPolicy.{case[0]}" for case in NETWORK}
        | {"priorityClass.name", "priorityClass.value", "rbac.viewers", "rbac.editors", "rbac.clusterReads"}
    )
    assert set(leaves(values)) == tried | WITHOUT_OBJECTS


def test_the_workers_image_goes_where_the_operators_goes(chart: Chart) -> None:
    def images(**values: Any) -> tuple[str, str]:
        config = yaml.safe_load(only(chart.render(values), "ConfigMap", NAME)["data"]["config.yaml"])
        return config["image"], config.get("gpuImage", "")

    registry = {"registry": "r.example.com"}
    assert images() == ("rljob-worker:0.1.0", "rljob-worker:0.1.0-gpu")
    assert images(image=registry) == ("r.example.com/rljob-worker:0.1.0", "r.example.com/rljob-worker:0.1.0-gpu")
    assert images(image=registry, config={"image": "mine:2"}) == ("mine:2", "")
    assert images(config={"gpuImage": "mine:2"}) == ("rljob-worker:0.1.0", "mine:2")


def test_a_changed_configuration_is_a_new_pod(chart: Chart, default: list[Object]) -> None:
    path = "spec.template.metadata.annotations.rljob\\dev/config-checksum"
    changed = chart.render({"config": {"clusterDomain": "cluster.local"}})
    assert yaml.safe_load(only(changed, "ConfigMap", NAME)["data"]["config.yaml"])["clusterDomain"] == "cluster.local"
    assert at(only(changed, "Deployment"), path) != at(only(default, "Deployment"), path) is not None


def test_watched_namespaces_need_no_right_on_the_cluster(chart: Chart) -> None:
    found = chart.render({"watchNamespaces": ["team-a", "team-b"], "crds": {"enabled": False}})
    without = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "PriorityClass"}
    assert not {each["kind"] for each in found} & without
    roles = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found if each["kind"] == "Role"}
    theirs = {
        (team, name) for team in ("team-a", "team-b") for name in ("rljob-operator", "rljobs-view", "rljobs-edit")
    }
    assert roles == {*theirs, (NAMESPACE, "rljob-operator-leader")}


def test_every_object_is_labelled_and_in_its_place(chart: Chart) -> None:
    for each in chart.render({"networkPolicy": {"enabled": True}, "commonLabels": {"team": "rl"}}):
        about = each["metadata"]
        assert (about["labels"]["app.kubernetes.io/instance"], about["labels"]["team"]) == (RELEASE, "rl")
        whole = each["kind"].startswith("Cluster") or each["kind"] in (
            "CustomResourceDefinition",
            "PriorityClass",
            "FlowSchema",
        )
        assert about.get("namespace") == (None if whole else NAMESPACE), each


def test_labels_that_are_given_twice_stand_once_and_never_take_the_pods_away(chart: Chart) -> None:
    """A tool between Helm and the API server refuses a key that stands twice."""
    ours = {"app.kubernetes.io/name": "mine", "app.kubernetes.io/part-of": "platform", "a": "of all"}
    values = {
        "commonLabels": ours,
        "podLabels": {**ours, "a": "of pods"},
        "service": {"labels": {"a": "of the service"}},
    }
    found = yaml.load_all(chart.run("template", RELEASE, str(CHART), values=values), Loader=EachKeyOnce)
    labels = {each["kind"]: at(each, "metadata.labels") for each in found if each}
    pod = at(only(chart.render(values), "Deployment"), "spec.template.metadata.labels")
    assert (labels["ServiceAccount"]["a"], labels["Service"]["a"], pod["a"]) == ("of all", "of the service", "of pods")
    assert {each["app.kubernetes.io/name"] for each in (*labels.values(), pod)} == {"rljob-operator"}
    assert pod["app.kubernetes.io/part-of"] == "platform"


class EachKeyOnce(yaml.CSafeLoader):
    """Refuses a mapping in which a key stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len({*keys}), (keys, str(node.start_mark))
        return super().construct_mapping(node, deep)


def test_selectors_find_the_pods_and_never_change(chart: Chart, default: list[Object]) -> None:
    constant = {"app.kubernetes.io/name": "rljob-operator", "app.kubernetes.io/instance": RELEASE}
    assert constant.items() <= at(only(default, "Deployment"), "spec.template.metadata.labels").items()
    assert at(only(default, "Deployment"), "spec.selector.matchLabels") == constant
    assert at(only(default, "Service"), "spec.selector") == constant
    assert at(only(default, "PodDisruptionBudget"), "spec.selector.matchLabels") == constant
    assert at(only(default, "Service"), "spec.ports.0.targetPort") == "metrics"

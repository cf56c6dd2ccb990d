"""The chart on a real API server: what Helm installs there, what is refused with which words, and what is left in the end."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from rljob_operator.generate import INSTALL_FILE
from rljob_operator.kube.process import rbac

from tests.cluster.control_plane import ControlPlane
from tests.cluster.policies import give_rights
from tests.support.chart import CHART, Chart, HelmRefused
from tests.support.paths import ROOT

ROLES = "/apis/rbac.authorization.k8s.io/v1"


class Installed:
    """Helm against the server; hooks need a kubelet that runs pods, so they are left out."""

    def __init__(self, chart: Chart, cluster: ControlPlane, kubeconfig: Path) -> None:
        self._chart, self._cluster, self._kubeconfig = chart, cluster, kubeconfig
        self.releases: dict[str, str] = {}

    def install(self, release: str, namespace: str, **values: Any) -> str:
        """Raises `HelmRefused`."""
        said = self.run("install", release, namespace, str(CHART), "--create-namespace", values=values)
        self.releases[release] = namespace
        return said

    def upgrade(self, release: str, namespace: str, **values: Any) -> str:
        return self.run("upgrade", release, namespace, str(CHART), values=values)

    def uninstall(self, release: str) -> str:
        return self.run("uninstall", release, self.releases.pop(release))

    def run(self, verb: str, release: str, namespace: str, *words: str, values: Mapping[str, Any] | None = None) -> str:
        place = (f"--kubeconfig={self._kubeconfig}", f"--namespace={namespace}")
        return self._chart.run(verb, release, *words, *place, values=values)

    def has(self, path: str) -> bool:
        """Whether there is an object at a path of the API."""
        return self._cluster.request("GET", path)[0] == 200

    def get(self, path: str) -> dict[str, Any]:
        """The object there, or fail."""
        code, answer = self._cluster.request("GET", path)
        assert code == 200, answer
        return answer


@pytest.fixture
def helm(chart: Chart, cluster: ControlPlane) -> Iterator[Installed]:
    """No release outlives its test."""
    installed = Installed(chart, cluster, cluster.kubeconfig)
    yield installed
    for release in list(installed.releases):
        installed.uninstall(release)


WITHOUT_CRD = {"crds": {"enabled": False}}


def test_a_crd_that_kubectl_applied_is_handed_over_with_the_commands_that_are_said(
    helm: Installed, cluster: ControlPlane
) -> None:
    for note in ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace"):
        cluster.kubectl("annotate", "crd", "rljobs.rljob.dev", "rlexperiments.rljob.dev", f"{note}-")
    words = r"the CRDs rlexperiments\.rljob\.dev and rljobs\.rljob\.dev are there already, from a user without Helm"
    with pytest.raises(HelmRefused, match=words) as said:
        helm.install("rl", "handed-over")

    commands = re.findall(r"^ +kubectl (.*)$", str(said.value), re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        cluster.told(*shlex.split(command))
    helm.install("rl", "handed-over")
    helm.uninstall("rl")  # which leaves it, as the release's
    with pytest.raises(HelmRefused, match="are there already, from release rl of namespace handed-over"):
        helm.install("other", "other")


def test_what_is_installed_changed_and_left(helm: Installed, cluster: ControlPlane) -> None:
    said = helm.install("rl", "changed", **WITHOUT_CRD)
    assert "kubectl --namespace changed rollout status deployment/rl-rljob-operator" in said
    role = helm.get(f"{ROLES}/clusterroles/rljob-operator")
    leader = helm.get(f"{ROLES}/namespaces/changed/roles/rljob-operator-leader")
    assert (role["rules"], leader["rules"]) == (rbac.rules("Jobs", "Cluster"), rbac.rules("Operator"))
    subject = {"kind": "ServiceAccount", "name": "rl-rljob-operator", "namespace": "changed"}
    assert helm.get(f"{ROLES}/clusterrolebindings/rljob-operator")["subjects"] == [subject]

    deployment = "/apis/apps/v1/namespaces/changed/deployments/rl-rljob-operator"
    before = helm.get(deployment)
    helm.upgrade("rl", "changed", **WITHOUT_CRD, replicas=1, config={"clusterDomain": "cluster.local"})
    after = helm.get(deployment)
    assert (before["spec"]["replicas"], after["spec"]["replicas"]) == (2, 1)
    assert before["spec"]["template"]["metadata"] != after["spec"]["template"]["metadata"]

    helm.uninstall("rl")
    gone = (deployment, f"{ROLES}/clusterroles/rljob-operator", "/api/v1/namespaces/changed/services/rl-rljob-operator")
    assert not any(map(helm.has, gone))
    assert helm.has("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rljobs.rljob.dev")


PRIVILEGED = {"containers": [{"name": "w", "image": "x", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}
PODS: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"volumes": [{"name": "v", "emptyDir": {}}], "serviceAccountName": "robot"}, ""),
    ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "hostPath is not allowed"),
    ({"hostNetwork": True}, "hostNetwork, hostPID and hostIPC are not allowed"),
    ({"hostPID": True}, "hostNetwork, hostPID and hostIPC are not allowed"),
    (PRIVILEGED, "securityContext.capabilities.add is not allowed"),
    ({**PRIVILEGED, "initContainers": PRIVILEGED["containers"], "containers": [{"name": "c", "image": "x"}]}, "capabilities"),
    ({"serviceAccountName": "admin"}, "admin is not allowed for pods of RLJobs; allowed: default, robot"),
]  # fmt: skip


def test_a_policy_keeps_the_operators_pods_from_their_node(
    helm: Installed, cluster: ControlPlane, namespace: str, other_namespace: str, tmp_path: Path
) -> None:
    """Only where it is asked for, and nobody else's."""
    cluster.change(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"tenant": "yes"}}})
    policy = {
        "enabled": True,
        "namespaceSelector": {"matchLabels": {"tenant": "yes"}},
        "serviceAccounts": ["robot"],
    }
    helm.install("rl", "of-operators", podPolicy=policy, **WITHOUT_CRD)
    login = cluster.kubeconfig_for(tmp_path, {"token": cluster.token("of-operators", "rl-rljob-operator")})

    def made(where: str, spec: dict[str, Any], *who: str) -> str:
        about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-", "namespace": where}}
        document = {**about, "spec": {"containers": [{"name": "w", "image": "x"}], **spec}}
        return cluster.kubectl(*who, "create", "-f", "-", stdin=json.dumps(document)).stderr

    operator = f"--kubeconfig={login}"
    cluster.wait_until("refusing", lambda: "hostPath" in made(namespace, PODS[2][0], operator))
    for spec, words in PODS:
        assert words in (said := made(namespace, spec, operator)), spec
        assert bool(said) == bool(words)
        assert made(other_namespace, spec, operator) == made(namespace, spec) == ""


def test_a_cluster_without_a_default_storage_class_is_told_of(helm: Installed, cluster: ControlPlane) -> None:
    missing = "This cluster has no default StorageClass"
    plain = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "plain"},
        "provisioner": "a.b",
    }
    try:
        cluster.told("apply", "-f", "-", stdin=json.dumps(plain))
        said = helm.install("rl", "storage", **WITHOUT_CRD)
        assert missing in said
        assert "config.checkpointClaim.storageClass" in said
        assert missing not in helm.upgrade("rl", "storage", **WITHOUT_CRD, conflictCheck=False)
        (command,) = re.findall(r"^ +kubectl (annotate .*)$", said, re.MULTILINE)
        cluster.told(*shlex.split(command.replace("NAME", "plain")))
        assert missing not in helm.upgrade("rl", "storage", **WITHOUT_CRD)
    finally:
        cluster.kubectl("delete", "storageclass", "plain", "--ignore-not-found")


def test_a_second_operator_of_all_namespaces(helm: Installed) -> None:
    helm.install("one", "first", **WITHOUT_CRD)
    with pytest.raises(HelmRefused, match="release one of namespace first looks after all namespaces already") as said:
        helm.install("two", "second", **WITHOUT_CRD)
    assert "Upgrade that release" in str(said.value)
    with pytest.raises(HelmRefused, match="release one of namespace first looks after all namespaces already"):
        helm.install("two", "second", **WITHOUT_CRD, watchNamespaces=["default"])
    with pytest.raises(HelmRefused, match="release one of namespace first runs in namespace first already"):
        helm.install("two", "first", **WITHOUT_CRD, watchNamespaces=["default"])
    with pytest.raises(HelmRefused, match=r'"rljob.*" .*in.* exists and cannot be imported'):  # in Helm's own words
        helm.install("two", "second", **WITHOUT_CRD, conflictCheck=False)


def test_operators_of_some_namespaces(helm: Installed, namespace: str, other_namespace: str) -> None:
    helm.install("one", "first", **WITHOUT_CRD, watchNamespaces=[namespace])
    assert not helm.has(f"{ROLES}/clusterroles/rljob-operator")
    assert helm.get(f"{ROLES}/namespaces/{namespace}/roles/rljob-operator")["rules"] == rbac.rules("Jobs")
    with pytest.raises(HelmRefused, match=f"release one of namespace first looks after namespace {namespace} already"):
        helm.install("two", "second", **WITHOUT_CRD, watchNamespaces=[other_namespace, namespace])
    with pytest.raises(HelmRefused, match=f"release one of namespace first looks after namespace {namespace} already"):
        helm.install("two", "second", **WITHOUT_CRD)
    helm.install("two", "second", **WITHOUT_CRD, watchNamespaces=[other_namespace])


def test_whoever_may_only_write_to_one_namespace(
    chart: Chart, cluster: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """With three values told; and what is said without them."""
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    limited = Installed(chart, cluster, give_rights(cluster, namespace, "installer", everything, tmp_path))
    with pytest.raises(HelmRefused, match=r"clusterroles.* is forbidden"):
        limited.install("mine", namespace, **WITHOUT_CRD, watchNamespaces=[namespace])
    limited.install("mine", namespace, **WITHOUT_CRD, watchNamespaces=[namespace], conflictCheck=False)
    limited.uninstall("mine")


def test_every_option_at_once_is_taken_by_the_server(chart: Chart, cluster: ControlPlane, namespace: str) -> None:
    values = {
        "namespaceOverride": namespace, "networkPolicy": {"enabled": True, "metricsFrom": [{"podSelector": {}}]},
        "imagePullSecrets": [{"name": "pull"}], "priorityClassName": "system-cluster-critical", "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}], "podLabels": {"a": "b"}, "podAnnotations": {"a": "b"},
        "extraEnv": [{"name": "A", "value": "b"}], "extraEnvFrom": [{"secretRef": {"name": "s", "optional": True}}],
        "extraVolumes": [{"name": "v", "emptyDir": {}}], "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}},
        "service": {"annotations": {"a": "b"}}, "podDisruptionBudget": {"maxUnavailable": "50%"},
        "config": {"checkpointClaim": {"size": "1Gi"}}, "commonLabels": {"team": "rl"},
    }  # fmt: skip
    rendered = chart.run("template", "rl", str(CHART), f"--namespace={namespace}", values=values)
    words = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
    assert "networkpolicy.networking.k8s.io/rl-rljob-operator" in cluster.told(*words, stdin=rendered)


def test_the_install_manifest_is_applied_by_plain_kubectl(cluster: ControlPlane) -> None:
    done = cluster.kubectl("apply", "--dry-run=server", "-f", str(ROOT / INSTALL_FILE))
    # Objects of a namespace that a dry run does not make are looked for in vain; nothing else may be said.
    complaints = [line for line in done.stderr.splitlines() if 'namespaces "rljob-system" not found' not in line]
    assert [line for line in complaints if not line.startswith("Warning: resource customresourcedefinitions")] == []
    assert "clusterrole.rbac.authorization.k8s.io/rljob-operator created" in done.stdout

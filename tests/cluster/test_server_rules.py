"""`kube.render.server_rules` against a real server: what they refuse it refuses, and what it takes they take."""

import json
from typing import Any

import pytest
from rljob.api import read_manifest
from rljob_operator.kube.render.server_rules import problems
from rljob_operator.kube.render.settings import Settings
from rljob_operator.verbs.render import objects

from tests.cluster.control_plane import ControlPlane
from tests.cluster.jobs import STRICT
from tests.unit.api.bad_manifests import PRESET

PODS = f"/api/v1/namespaces/default/pods?{STRICT}&dryRun=All"


def of_pod(**fields: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": fields}}


def of_worker(**fields: Any) -> dict[str, Any]:
    return of_pod(containers=[{"name": "worker", **fields}])


def of_metadata(**fields: Any) -> dict[str, Any]:
    return {"podTemplate": {"metadata": fields}}


def affinity(**expression: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": "zone", **expression}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return of_pod(affinity={"nodeAffinity": required})


SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}, "resources: got 'cpu'; allowed: requests up to"),
    ({"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1500M"}}}, "got 'memory'"),
    ({"resources": {"requests": {"nvidia.com/gpu": 1}}}, "resources: got 'nvidia.com/gpu'"),
    ({"resources": {"limits": {"nvidia.com/gpu": 0.5}}}, "a whole number"),
    ({"resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}}}, "the same or nothing"),
    ({"resources": {"limits": {"gpu": 1}}}, "limits: got 'gpu'; allowed: cpu"),
    ({"resources": {"requests": {"mem": "1Gi"}}}, "requests: got 'mem'"),
    ({"nodeSelector": {"team": "rl agents"}}, "nodeSelector.team: got 'rl agents'"),
    ({"nodeSelector": {"team": "-rl"}}, "nodeSelector.team"),
    ({"nodeSelector": {"team": "x" * 64}}, "nodeSelector.team"),
    ({"nodeSelector": {"my team": "rl"}}, "nodeSelector.my team: got 'my team'"),
    ({"nodeSelector": {"Example.com/team": "rl"}}, "nodeSelector"),
    ({"nodeSelector": {"a/b/c": "rl"}}, "nodeSelector"),
    ({"tolerations": [{"key": "gpu", "operator": "exists"}]}, "tolerations[0].operator: got 'exists'"),
    ({"tolerations": [{"key": "gpu", "operator": "Exists", "value": "x"}]}, "operator Exists without a value"),
    ({"tolerations": [{"operator": "Equal", "value": "x"}]}, "operator Exists without a value, or Equal with a key"),
    ({"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExec"}]}, "tolerations[0].effect"),
    ({"tolerations": [{"key": "a b", "operator": "Exists"}]}, "tolerations[0].key"),
    ({"tolerations": [{"key": "a", "operator": "Equal", "value": "b c"}]}, "tolerations[0].value"),
    ({"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}]}, "only with effect NoExecute"),
    ({"tolerations": [{"key": "a", "operator": "Exists", "effects": "NoExecute"}]}, "no such field"),
    ({"env": [{"name": "A=B", "value": "x"}]}, "name: got 'A=B'"),
    ({"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}, "not both"),
    ({"env": [{"name": "A", "valueFrom": {}}]}, "exactly one source"),
    ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}, "secretKeyRef.key: required"),
    ({"env": [{"name": "A", "valueFrom": {"secretRef": {"name": "s"}}}]}, "no such field"),
    ({"env": [{"name": "A", "values": "x"}]}, "no such field"),
    (of_metadata(labels={"team": "rl agents"}), "metadata.labels.team: got 'rl agents'"),
    (of_metadata(annotations={"prometheus.io/port": 9090}), "got 9090; allowed: a text (quote a number, on and true)"),
    ({"tolerations": [{"key": "spot", "value": True}]}, "value: got true; allowed: a text"),
    (of_metadata(labels={"a b": "c"}), "metadata.labels.a b"),
    (of_metadata(annotations={"a b": "c"}), "metadata.annotations.a b"),
    (of_metadata(label={"a": "c"}), "no such field"),
    (of_pod(serviceAccountName="My_Account"), "serviceAccountName"),
    (of_pod(priorityClassName="High Priority"), "priorityClassName"),
    (of_pod(runtimeClassName="Nvidia"), "runtimeClassName"),
    (of_pod(activeDeadlineSeconds=0), "activeDeadlineSeconds: got '0'"),
    (of_pod(activeDeadlineSeconds="600"), "activeDeadlineSeconds"),
    (of_pod(dnsPolicy="clusterFirst"), "dnsPolicy"),
    (of_pod(securityContext={"runAsUser": -1}), "runAsUser: got '-1'"),
    (of_pod(securityContext={"runAsUser": "1000"}), "runAsUser"),
    (of_pod(securityContext={"seccompProfile": {"type": "runtime/default"}}), "seccompProfile.type"),
    (of_pod(nodeselector={"a": "b"}), "no such field"),
    (of_pod(tolerations={"key": "a"}), "spec.tolerations"),
    (of_pod(volumes=[{"name": "Data", "emptyDir": {}}]), "volumes[0].name: got 'Data'"),
    (of_pod(volumes=[{"name": "data", "emptyDir": {}, "configMap": {"name": "x"}}]), "got 'configMap, emptyDir'; allowed: one"),
    (of_pod(volumes=[{"name": "data", "persistentVolumeClaim": {"claim": "x"}}]), "claimName: required"),
    (of_pod(volumes=[{"name": "data", "secret": {"secretName": "s", "defaultMode": 1000}}]), "defaultMode: got '1000'"),
    (of_pod(affinity={"nodeAffinity": {"required": {}}}), "no such field"),
    (affinity(operator="in", values=["a"]), "operator: got 'in'"),
    (affinity(operator="In"), "values with In"),
    (affinity(operator="Exists", values=["a"]), "none with Exists"),
    (of_pod(topologySpreadConstraints=[{**SPREAD, "maxSkew": 0}]), "maxSkew: got '0'"),
    (of_pod(topologySpreadConstraints=[{**SPREAD, "whenUnsatisfiable": "Never"}]), "whenUnsatisfiable"),
    (of_pod(containers=[{"name": "Side_Car", "image": "a"}]), "containers[0].name"),
    (of_pod(containers=[{"name": "side", "image": " a"}]), "image: got ' a'"),
    (of_pod(initContainers=[{"name": "worker", "image": "a"}]), "spec: got 'worker'"),
    (of_pod(hostAliases=[{"ip": "10.0.0.1", "hostname": "a"}]), "no such field"),
    (of_worker(volumeMounts=[{"name": "nothing", "mountPath": "/a"}]), "spec: got 'nothing'; allowed: volumeMounts"),
    (of_worker(volumeMounts=[{"name": "rljob-tmp", "mountPath": "/a", "subPath": "../b"}]), "subPath"),
    (of_worker(volumeMounts=[{"name": "rljob-tmp", "mountPath": "/a", "subPath": "/b"}]), "subPath"),
    (of_worker(volumeMount=[{"name": "rljob-tmp", "mountPath": "/a"}]), "no such field"),
    (of_worker(ports=[{"containerPort": 70000}]), "containerPort: got '70000'"),
    (of_worker(ports=[{"containerPort": 8080, "name": "My_Port"}]), "name: got 'My_Port'"),
    (of_worker(ports=[{"containerPort": 8080, "protocol": "tcp"}]), "protocol: got 'tcp'"),
    (of_worker(imagePullPolicy="always"), "imagePullPolicy: got 'always'"),
    (of_worker(livenessProbe=None, readinessProbe={"httpGet": None, "periodSeconds": 3}), "exactly one of exec"),
    (of_worker(readinessProbe={"exec": {"command": ["a"]}}), "exactly one of exec"),
    (of_worker(lifecycle={"preStop": {}}), "exactly one of exec"),
    (of_worker(resources={"limits": {"cpu": "much"}}), "limits: got 'cpu'; allowed: Kubernetes quantities"),
    (of_worker(resources={"limits": {"cpu": "-1"}}), "cpu"),
    (of_worker(resources={"limit": {"cpu": "1"}}), "no such field"),
]  # fmt: skip
TAKEN: list[dict[str, Any]] = [
    {"resources": {"requests": {"cpu": 0.5, "memory": 500_000_000}, "limits": {"cpu": 1, "memory": "1Gi"}}},
    {"resources": {"limits": {"nvidia.com/gpu": 1, "example.com/fast.nic": "2"}}},
    {"resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": 1, "ephemeral-storage": "1Gi"}}},
    {"resources": {"requests": {"cpu": "100m"}, "limits": {"hugepages-2Mi": "4Mi"}}},
    {"nodeSelector": {"example.com/team_1": "", "kubernetes.io/hostname": "Node.1_a"}},
    {"tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b"}, {"key": "a.b/c", "operator": "Exists", "effect": ""}]},
    {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}]},
    {"env": [{"name": "my.var-1", "value": None}]},
    {"env": [{"name": "B", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]},
    {"env": [{"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": 1}}}]},
    of_metadata(labels={"team": "a.b_c-d", "example.com/e": ""}, annotations={"example.com/what": "any text: {}"}),
    of_pod(volumes=[{"name": "data"}, {"name": "more", "emptyDir": {"sizeLimit": 5}}]),
    of_pod(volumes=[{"name": "data", "projected": {"sources": [{"configMap": {"name": "x", "optional": True}}]}}]),
    of_pod(containers=[{"name": "side", "image": "a", "securityContext": {"runAsUser": 0}, "resources": {"limits": {"cpu": 1}}}]),
    of_pod(initContainers=[{"name": "first", "image": "a", "restartPolicy": "Always"}]),
    of_pod(topologySpreadConstraints=[SPREAD], hostNetwork=False, terminationGracePeriodSeconds=0),
    of_pod(affinity={"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}}]}}),
    affinity(operator="Gt", values=["3"]),
    of_worker(ports=[{"containerPort": 8080}, {"containerPort": 8081, "name": "http", "protocol": "UDP"}]),
    of_worker(lifecycle={"preStop": {"sleep": {"seconds": 3}}}),
    of_worker(readinessProbe={"httpGet": None, "exec": {"command": ["true"]}}),
    of_worker(volumeMounts=[{"name": "rljob-tmp", "mountPath": "/a", "subPath": "b/..c"}]),
]  # fmt: skip


def pod_with(fields: dict[str, Any]) -> dict[str, Any]:
    """An actor's pod with these fields of its section."""
    (each,) = (
        each
        for each in objects(
            read_manifest(PRESET, [f"spec.actors={json.dumps({'replicas': 1, **fields})}"]), Settings(image="a")
        )
        if each["metadata"]["labels"].get("rljob.dev/member") == "actor-0"
    )
    return each


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=lambda value: json.dumps(value)[:90])
def test_what_they_refuse_is_refused(cluster: ControlPlane, fields: dict[str, Any], words: str) -> None:
    pod = pod_with(fields)
    code, answer = cluster.request("POST", PODS, pod)
    assert code in (400, 403, 422), answer
    assert words in "\n".join(map(str, problems(pod))), answer["message"]


@pytest.mark.parametrize("fields", TAKEN, ids=lambda value: json.dumps(value)[:90])
def test_what_is_taken_they_take(cluster: ControlPlane, fields: dict[str, Any]) -> None:
    pod = pod_with(fields)
    code, answer = cluster.request("POST", PODS, pod)
    assert (code, list(problems(pod))) == (201, []), answer

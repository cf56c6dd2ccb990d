"""`kube.render.strategic_merge` against a real server: its table against core's types, its results against kubectl's.

A PodTemplate is the object that holds a pod's template and nothing else, so it needs no node and no controller.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from rljob_operator.kube.render.pod import on_spot_nodes
from rljob_operator.kube.render.template import MERGE_KEYS, PodTemplateProblem, merged

from tests.cluster import jobs
from tests.cluster.control_plane import ControlPlane

TEMPLATES = "/api/v1/namespaces/default/podtemplates"
STRATEGIC = "application/strategic-merge-patch+json"
POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "rljob", "role": "actor"}, "finalizers": ["example.com/a", "example.com/b"]},
    "spec": {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "supplementalGroups": [1, 2]},
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["one"]}],
        "topologySpreadConstraints": [
            {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "keys", "secret": {"secretName": "keys"}}],
        "initContainers": [{"name": "first", "image": "a:1"}, {"name": "second", "image": "a:2"}],
        "containers": [
            {
                "name": "role",
                "image": "rl:1",
                "args": ["worker", "actor"],
                "env": [{"name": "A", "value": "a"}, {"name": "B", "value": "b"}, {"name": "C", "value": "c"}],
                "ports": [
                    {"name": "metrics", "containerPort": 9090},
                    {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
                ],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "keys", "mountPath": "/keys"}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            },
            {"name": "redis", "image": "redis:7"},
        ],
    },
}  # fmt: skip


def of_role(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "role", **fields}]}}


def of_pod(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


PATCHES: list[dict[str, Any]] = [
    {},
    {"metadata": {"labels": {"app": None, "team": "rl"}, "annotations": {"a": "b"}}},
    {"metadata": {"finalizers": ["example.com/c", "example.com/a"]}},
    of_pod(hostNetwork=True, restartPolicy=None, nodeName=None),
    of_pod(securityContext={"runAsNonRoot": None, "fsGroup": 1, "supplementalGroups": [3]}),
    of_pod(securityContext={"$patch": "replace", "fsGroup": 1}),
    of_pod(securityContext={"$patch": "delete"}),
    of_pod(affinity={"$patch": "delete"}),
    of_pod(nodeSelector={"zone": "b", "disk": "ssd"}),
    of_pod(nodeSelector=None),
    of_pod(tolerations=[{"key": "spot", "operator": "Exists"}]),
    of_pod(imagePullSecrets=[{"name": "other"}, {"name": "registry"}]),
    of_pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["two"]}, {"ip": "10.0.0.2", "hostnames": ["three"]}]),
    of_pod(topologySpreadConstraints=[{"topologyKey": "kubernetes.io/hostname", "maxSkew": 2}]),
    of_pod(
        topologySpreadConstraints=[{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
        priorityClassName="rl",
    ),
    of_pod(schedulingGates=[{"name": "example.com/gate"}], readinessGates=[{"conditionType": "example.com/ready"}]),
    of_pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]),
    of_pod(dnsConfig={"nameservers": ["10.0.0.3"], "searches": None}),
    of_pod(volumes=[{"name": "more", "configMap": {"name": "more"}}]),
    of_pod(volumes=[{"name": "keys", "$patch": "delete"}], containers=[{"name": "role", "volumeMounts": None}]),
    of_pod(volumes=[{"name": "data", "emptyDir": None, "persistentVolumeClaim": {"claimName": "data"}}]),
    of_pod(volumes=[{"name": "data", "emptyDir": {"medium": "Memory"}}]),
    of_pod(volumes=[{"name": "data", "emptyDir": {"$patch": "replace", "medium": "Memory"}}]),
    of_pod(
        volumes=[{"$patch": "replace"}, {"name": "only", "emptyDir": {}}],
        containers=[{"name": "role", "volumeMounts": [{"$patch": "replace"}, {"name": "only", "mountPath": "/only"}]}],
    ),
    of_pod(initContainers=[{"name": "second", "image": "b:2"}, {"name": "third", "image": "b:3"}]),
    of_pod(initContainers=[{"name": "third", "image": "b:3"}, {"name": "second", "image": "b:2"}]),
    of_pod(initContainers=[{"name": "second", "args": ["x"]}, {"name": "first", "args": ["y"]}]),
    of_pod(initContainers=[{"$patch": "replace"}]),
    of_pod(containers=[{"name": "sidecar", "image": "side:1", "env": [{"name": "A", "value": None}]}]),
    of_pod(containers=[{"name": "redis", "image": "redis:8"}, {"name": "role", "image": "rl:2"}]),
    of_pod(containers=[{"name": "redis", "$patch": "delete"}]),
    of_pod(containers=[{"name": "redis", "$patch": "delete"}, {"name": "redis", "image": "valkey:8"}]),
    of_pod(containers=[{"name": "nobody", "$patch": "delete"}]),
    of_pod(containers=[{"$patch": "replace"}, {"name": "alone", "image": "alone:1"}]),
    of_role(args=["sleep"], command=["sh"], tty=True),
    of_role(env=[{"name": "B", "value": "bb"}, {"name": "D", "value": "d"}, {"name": "A", "value": "aa"}]),
    of_role(env=[{"name": "B", "value": None, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]),
    of_role(env=[{"name": "A", "$patch": "delete"}, {"name": "C", "$patch": "delete"}]),
    of_role(env=[{"$patch": "replace"}, {"name": "C", "value": "c"}, {"name": "A", "value": "a"}]),
    of_role(env=[]),
    of_role(env=None),
    of_role(envFrom=[{"configMapRef": {"name": "more"}}]),
    of_role(ports=[{"containerPort": 8080}, {"containerPort": 9090, "name": "figures"}]),
    of_role(ports=[{"containerPort": 53, "name": "first"}]),
    of_role(ports=[{"containerPort": 53, "$patch": "delete"}]),
    of_role(ports=[{"$patch": "replace"}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}]),
    of_role(volumeMounts=[{"name": "keys", "mountPath": "/data"}, {"name": "data", "mountPath": "/more"}]),
    of_role(volumeMounts=[{"mountPath": "/keys", "readOnly": True}]),
    of_pod(
        volumes=[{"name": "raw", "persistentVolumeClaim": {"claimName": "raw"}}],
        containers=[{"name": "role", "volumeDevices": [{"name": "raw", "devicePath": "/dev/raw"}]}],
    ),
    of_role(resources={"requests": {"cpu": None, "memory": "2Gi"}, "limits": {"nvidia.com/gpu": "1"}}),
    of_role(resources={"$patch": "replace", "limits": {"cpu": "2"}}),
    of_role(livenessProbe={"httpGet": {"path": "/healthz", "port": 9090, "httpHeaders": None}}),
    of_role(lifecycle={"preStop": {"$patch": "delete"}, "postStart": {"exec": {"command": ["true"]}}}),
]
REFUSED: list[dict[str, Any]] = [
    of_pod(containers=[{"image": "nameless:1"}]),
    of_pod(containers=[{"name": "role", "$patch": "merge"}]),
    of_pod(containers=["role"]),
    of_pod(securityContext={"$patch": "merge", "fsGroup": 1}),
    of_role(env=[{"value": "nameless"}]),
    of_role(ports=[{"name": "dns"}]),
]
OURS_ALONE: list[tuple[dict[str, Any], str]] = [
    (of_pod(affinity={"$patch": "replace", "nodeAffinity": {}}), "taken"),
    (of_role(env=[{"name": "A", "$patch": "replace", "value": "b"}]), "entry of its own"),
    ({"spec": {"$setElementOrder/containers": [{"name": "redis"}, {"name": "role"}]}}, "unknown directive"),
    ({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}, "unknown directive"),
    (of_pod(volumes=[{"name": "data", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]), "unknown directive"),
]
"""What a server takes too, but with another result than one would think, or than is of use in a manifest."""


@pytest.fixture(scope="module")
def stored(cluster: ControlPlane) -> Iterator[dict[str, Any]]:
    """The pod's template as a server holds it, with all defaults, in the PodTemplate ``pod``."""
    yield cluster.create(TEMPLATES, pod_template(POD))["template"]
    cluster.request("DELETE", f"{TEMPLATES}/pod")


def pod_template(template: dict[str, Any], name: str = "pod") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": template}


def completed(cluster: ControlPlane, template: dict[str, Any]) -> dict[str, Any]:
    """The template with a server's defaults, as if it were made from nothing."""
    path = f"{TEMPLATES}?dryRun=All&{jobs.STRICT}"
    return cluster.create(path, pod_template(template, "other"))["template"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: json.dumps(patch)[:90])
def test_it_merges_as_kubectl_does(cluster: ControlPlane, stored: dict[str, Any], patch: dict[str, Any]) -> None:
    words = ["patch", "podtemplate", "pod", "--type=strategic", "--dry-run=server", "-o", "json"]
    theirs = json.loads(cluster.told(*words, "-p", json.dumps({"template": patch})))["template"]
    assert completed(cluster, merged(stored, patch)) == theirs, "on the pod as it is stored"
    assert completed(cluster, merged(POD, patch)) == theirs, "on the pod as it is generated"


@pytest.mark.parametrize("patch", REFUSED, ids=lambda patch: json.dumps(patch)[:90])
def test_what_kubectl_refuses_is_refused(cluster: ControlPlane, stored: dict[str, Any], patch: dict[str, Any]) -> None:
    done = cluster.kubectl("patch", "podtemplate", "pod", "--type=strategic", "-p", json.dumps({"template": patch}))
    assert done.returncode != 0
    with pytest.raises(PodTemplateProblem):
        merged(stored, patch)


@pytest.mark.parametrize(("patch", "words"), OURS_ALONE, ids=lambda value: json.dumps(value)[:90])
def test_where_it_differs_from_kubectl(
    cluster: ControlPlane, stored: dict[str, Any], patch: dict[str, Any], words: str
) -> None:
    """If a server begins to do the same, the difference is out of date."""
    answer = cluster.change(f"{TEMPLATES}/pod?dryRun=All", {"template": patch}, STRATEGIC)
    if words == "taken":
        assert "affinity" not in answer["template"]["spec"]
        assert merged(stored, patch)["spec"]["affinity"] == {"nodeAffinity": {}}
    else:
        with pytest.raises(PodTemplateProblem, match=words):
            merged(stored, patch)


def test_a_pod_for_spot_nodes_is_taken(cluster: ControlPlane) -> None:
    spot = on_spot_nodes(POD["spec"])
    assert completed(cluster, {**POD, "spec": spot})["spec"]["tolerations"] == spot["tolerations"]


# --- generated patches ------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["A", "B", "C", "D", "E"])
WORDS = st.sampled_from(["x", "y", "z"])


def entries(key: str, keys: Any, entry: Any) -> Any:
    """Patches of a merged list: entries to merge or add, some to delete, now and then all to replace; or null."""
    plain = st.builds(lambda value, rest: {key: value, **rest}, keys, entry)
    gone = st.builds(lambda value: {key: value, "$patch": "delete"}, keys)
    listed = st.lists(plain | plain | gone, max_size=4, unique_by=lambda item: item[key])
    return st.one_of(listed, listed, listed.map(lambda items: [{"$patch": "replace"}, *items]))


ENV = entries("name", NAMES, st.fixed_dictionaries({"value": WORDS}))
MOUNTS = entries("mountPath", st.sampled_from(["/data", "/keys", "/a", "/b"]), st.just({"name": "data"}))
PORTS = entries(
    "containerPort", st.sampled_from([53, 80, 9090]), st.fixed_dictionaries({}, optional={"hostIP": st.just("")})
)
CONTAINER = st.fixed_dictionaries(
    {"image": WORDS},
    optional={
        "env": ENV | st.none(), "volumeMounts": MOUNTS, "ports": PORTS, "args": st.lists(WORDS, max_size=2) | st.none(),
        "resources": st.sampled_from([None, {"$patch": "delete"}, {"requests": {"cpu": None}}, {"limits": {"cpu": "2"}}]),
    },
)  # fmt: skip
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "containers": entries("name", st.sampled_from(["role", "redis", "more", "side"]), CONTAINER),
        "initContainers": entries("name", st.sampled_from(["first", "second", "third", "fourth"]), CONTAINER),
        "imagePullSecrets": entries("name", st.sampled_from(["registry", "a", "b"]), st.just({})),
        "nodeSelector": st.dictionaries(WORDS, WORDS | st.none(), max_size=3) | st.none(),
        "tolerations": st.lists(st.fixed_dictionaries({"key": WORDS, "operator": st.just("Exists")}), max_size=2),
        "securityContext": st.sampled_from([None, {"$patch": "delete"}, {"fsGroup": 3}, {"runAsNonRoot": None}]),
    },
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SPEC)
def test_generated_patches_merge_as_on_a_server(
    cluster: ControlPlane, stored: dict[str, Any], spec: dict[str, Any]
) -> None:
    patch = {"spec": spec}
    path = f"{TEMPLATES}/pod?dryRun=All&{jobs.STRICT}"
    code, answer = cluster.request("PATCH", path, {"template": patch}, STRATEGIC)
    # A directive below a new entry has nothing to act on. A server leaves it in the entry, and then does not know the field.
    assume("$patch" not in str(answer.get("message")))
    # A null there is kept, and read as no cores; ours leaves it out.
    assume("'cpu': '0'" not in str(answer))
    ours = cluster.request(
        "POST", f"{TEMPLATES}?dryRun=All&{jobs.STRICT}", pod_template(merged(stored, patch), "other")
    )
    assert (code == 200) == (ours[0] == 201), (answer.get("message"), ours[1].get("message"))
    if code == 200:
        assert ours[1]["template"] == answer["template"]


# --- the table --------------------------------------------------------------------------------------------------------


def lists(schemas: dict[str, Any], name: str, seen: set[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(type, field, its schema) of every list in a type of core and below it."""
    if name in seen:
        return
    seen.add(name)
    for field, schema in schemas[name].get("properties", {}).items():
        if schema.get("type") == "array":
            yield name, field, schema
        for part in (schema, schema.get("items", {})):
            for each in (part, *part.get("allOf", ())):
                if "$ref" in each:
                    yield from lists(schemas, each["$ref"].rpartition("/")[2], seen)


def test_the_table_is_that_of_cores_types(cluster: ControlPlane) -> None:
    """The server says itself how a patch merges each list in a PodTemplateSpec, whatever the list is part of."""
    code, document = cluster.request("GET", "/openapi/v3/api/v1")
    assert code == 200
    found = [*lists(document["components"]["schemas"], "io.k8s.api.core.v1.PodTemplateSpec", set())]
    assert len(found) > 60
    merge_keys = {}
    for owner, field, schema in found:
        strategies = schema.get("x-kubernetes-patch-strategy", "").split(",")
        assert ("merge" in strategies) == (field in MERGE_KEYS), f"{owner}.{field}"
        if "merge" in strategies:
            merge_keys[field] = schema.get("x-kubernetes-patch-merge-key", "")
    assert merge_keys == MERGE_KEYS

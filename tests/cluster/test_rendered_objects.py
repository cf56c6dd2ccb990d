"""Every object that the operator would make, given to a real API server, in a namespace with Pod Security `restricted`."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rljob.api import parse_job, read_manifest
from rljob.api.presets import PRESETS
from rljob_operator.core.member import Role
from rljob_operator.kube.apiserver.resources import WORKLOADS
from rljob_operator.kube.process import rbac
from rljob_operator.kube.render import names, others
from rljob_operator.kube.render.external_redis import removal
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.settings import Settings
from rljob_operator.verbs.render import objects

from tests.cluster.control_plane import ControlPlane
from tests.cluster.jobs import STRICT, Answer, kept, of_preset
from tests.support.operator_roles import role_objects
from tests.unit.api.bad_manifests import EXAMPLES, PRESET

NAMESPACE = "restricted"
PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "Secret": "secrets",
    "Service": "services",
}
EVERYTHING = [
    "spec.actors.inference=Central",
    "spec.inference.replicas=1",
    "spec.learner.accelerator.count=1",
    "spec.actors.spot=true",
    "spec.actors.topologySpread=Required",
    "spec.actors.tolerations=[{key: team, operator: Exists}]",
    "spec.actors.env=[{name: A, value: $(RLJOB_NAME)}, {name: B, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]",
    "spec.actors.podTemplate.spec.volumes=[{name: scratch, emptyDir: {sizeLimit: 1Gi}}]",
    "spec.actors.podTemplate.spec.containers=[{name: worker, volumeMounts: [{name: scratch, mountPath: /scratch}, "
    "{name: scratch, mountPath: /dev/shm, subPath: shm}]}]",
    "spec.learner.podTemplate.spec.runtimeClassName=nvidia",
    "spec.replay.redis.image=redis:7.2-alpine",
    "spec.replay.redis.resources={limits: {memory: 2Gi}}",
]
SETTINGS = {
    "the defaults": Settings(image="rljob-worker:test"),
    "no user": Settings(image="rljob-worker:test", run_as_user=None),
    "off GPU nodes": Settings(image="rljob-worker:test", keep_off_gpu_nodes="Required"),
    "a claim": Settings(image="rljob-worker:test", checkpoint_size="5Gi", prometheus_namespaces=None),
}


@pytest.fixture(scope="module")
def namespace(cluster: ControlPlane) -> Iterator[str]:
    """One whose pods must be restricted, on a cluster with the classes that manifests name."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    made = [
        ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}}),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "rl-learner"}, "value": 1000}),
        ("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "nvidia"}, "handler": "nvidia"}),
    ]
    for path, document in made:
        cluster.create(path, document)
    yield NAMESPACE
    for path, document in made[1:]:
        cluster.request("DELETE", f"{path}/{document['metadata']['name']}")


def tried(cluster: ControlPlane, document: dict[str, Any]) -> Answer:
    """A dry run of its creation; unknown fields are refused."""
    version, kind = document["apiVersion"], document["kind"]
    folder = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    place = document["metadata"].get("namespace")
    where = f"{folder}/namespaces/{place}/{plural}" if place else f"{folder}/{plural}"
    return Answer(*cluster.request("POST", f"{where}?{STRICT}&dryRun=All", document))


def rendered(manifest: dict[str, Any], settings: Settings) -> list[dict[str, Any]]:
    return list(objects({**manifest, "metadata": {**manifest["metadata"], "namespace": NAMESPACE}}, settings))


def all_admitted(cluster: ControlPlane, manifest: dict[str, Any], settings: Settings) -> None:
    for document in rendered(manifest, settings):
        answer = tried(cluster, document)
        assert answer.accepted, f"{document['kind']} {document['metadata']['name']}: {answer.message}"
        if document["kind"] == "Pod":  # a default that the server fills in elsewhere would not be ours
            spec = answer.document["spec"]
            for field in ("hostname", "subdomain", "restartPolicy", "securityContext", "affinity"):
                assert spec.get(field) == document["spec"].get(field)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_object_of_an_example_is_admitted(cluster: ControlPlane, namespace: str, file: Path) -> None:
    all_admitted(cluster, read_manifest(file), SETTINGS["the defaults"])


@pytest.mark.parametrize("name", PRESETS)
def test_every_object_of_a_preset_is_admitted(cluster: ControlPlane, namespace: str, name: str) -> None:
    all_admitted(cluster, read_manifest(PRESET, of_preset(name)), SETTINGS["the defaults"])


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_object_of_a_job_with_everything_is_admitted(
    cluster: ControlPlane, namespace: str, settings: Settings
) -> None:
    for more in ([], ["spec.checkpoint.storage={objectStore: {url: s3://bucket/runs, secretRef: {name: s3}}}"]):
        all_admitted(cluster, read_manifest(PRESET, ["spec.preset=PongApeX", *EVERYTHING, *more]), settings)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_job_that_removes_a_log_is_admitted_and_so_are_its_pods(
    cluster: ControlPlane, namespace: str, settings: Settings
) -> None:
    (example,) = [file for file in EXAMPLES if file.stem == "external-redis"]
    pods = [
        each
        for each in rendered(read_manifest(example), settings)
        if names.EXTERNAL_LOG_ANNOTATION in annotations(each)
    ]
    assert len(pods) == 2, "one a shard"
    job = removal(pods[0])
    assert job is not None
    metadata = {**job["spec"]["template"]["metadata"], "name": "removal", "namespace": NAMESPACE}
    for document in (job, {"apiVersion": "v1", "kind": "Pod", **job["spec"]["template"], "metadata": metadata}):
        answer = tried(cluster, document)
        assert answer.accepted, answer.message


def annotations(document: dict[str, Any]) -> dict[str, str]:
    return document["metadata"].get("annotations") or {}


def test_the_namespace_refuses_what_is_not_restricted(cluster: ControlPlane, namespace: str) -> None:
    root = "spec.actors.podTemplate={spec: {securityContext: {runAsNonRoot: null, runAsUser: 0}}}"
    *_, evaluator = rendered(read_manifest(PRESET), SETTINGS["the defaults"])
    assert tried(cluster, evaluator).accepted
    pods = [each for each in rendered(read_manifest(PRESET, [root]), SETTINGS["the defaults"]) if each["kind"] == "Pod"]
    refused = [tried(cluster, pod).message for pod in pods if not tried(cluster, pod).accepted]
    assert len(refused) == 1
    assert 'violates PodSecurity "restricted' in refused[0]


@pytest.mark.parametrize("watched", [(), ("default",)])
def test_every_role_is_admitted(cluster: ControlPlane, watched: tuple[str, ...]) -> None:
    for document in role_objects("rljob-operator", "default", watched, outside=True):
        answer = tried(cluster, document)
        assert answer.accepted, answer.message


def test_every_grant_is_for_something_that_the_server_knows(cluster: ControlPlane) -> None:
    for grant in (each for each in rbac.TABLE if each.group != WORKLOADS.group):  # that one is in test_kube_kueue
        folder = "/api/v1" if not grant.group else f"/apis/{grant.group}"
        if grant.group:
            versions = cluster.request("GET", folder)[1]["versions"]
            folder = f"/apis/{versions[0]['groupVersion']}"
        known = {each["name"]: each["verbs"] for each in cluster.request("GET", folder)[1]["resources"]}
        for resource in grant.resources:
            if not resource.endswith("/finalizers"):  # names that only an admission plugin asks for
                assert set(grant.verbs) <= set(known[resource]), resource


# The Workloads of every example, every preset and a job with everything, as Kueue's definition takes them.

QUEUED = Settings(image="rljob-worker:test", kueue=True)
JOBS: dict[str, dict[str, Any]] = {
    **{file.stem: read_manifest(file) for file in EXAMPLES},
    **{name: read_manifest(PRESET, of_preset(name)) for name in PRESETS},
    "everything": read_manifest(PRESET, ["spec.preset=PongApeX", *EVERYTHING]),
}
TRY_WORKLOAD = f"{WORKLOADS.path('default')}?{STRICT}&dryRun=All"


def asked_for(name: str) -> list[dict[str, Any]]:
    """The Workload of its core, and one of a block of actors."""
    written = JOBS[name]
    owned = Owned(parse_job({**written, "metadata": {**written["metadata"], "namespace": "default"}}), "uid")
    sets = {
        "pong": others.core_sets(owned, QUEUED),
        "pong.actors-0": [others.pod_set(owned, Role.ACTOR, 16, QUEUED)],
    }
    named = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
    rest = {"queueName": "team", "priority": 7, "priorityClassRef": named}
    return [others.workload(owned, each, {"podSets": found, **rest}) for each, found in sets.items()]


@pytest.mark.parametrize("name", JOBS)
def test_every_workload_is_admitted_and_nothing_of_it_is_dropped(with_kueue: ControlPlane, name: str) -> None:
    for document in asked_for(name):
        answer = with_kueue.create(TRY_WORKLOAD, document)
        assert kept(document["spec"], answer["spec"])


@pytest.mark.parametrize("wrong", [{"queue": "team"}, {"queueName": 1}, {"podSets": []}], ids=str)
def test_a_workload_that_is_wrong_is_refused(with_kueue: ControlPlane, wrong: dict[str, Any]) -> None:
    """So that the test above can fail: the kind has a schema."""
    document = copy.deepcopy(asked_for("everything")[0])
    document["spec"].update(wrong)
    code, answer = with_kueue.request("POST", TRY_WORKLOAD, document)
    assert code in (400, 422), answer

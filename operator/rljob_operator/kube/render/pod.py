"""The pod of one member of a job.

Where a role's pods go: the manifest's fields and podTemplate, spot nodes, and nodes with GPUs.

What stands beside a role as native sidecars: the Redis of a replay shard, which starts before the service and saves after it has
ended, and the trackers of the learner.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any, Final

from rljob.api import RLJob, quantity
from rljob.replay.redis_options import server_options
from rljob.tracking.tracker import IDENTITY_VARIABLE, trackers_of

from rljob_operator.core.member import LEADERS, Role
from rljob_operator.kube.render import external_redis, names
from rljob_operator.kube.render.containers import resources, restricted, worker
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.names import at
from rljob_operator.kube.render.roles import device, external_redis_of, has_own_redis, image, section, section_name
from rljob_operator.kube.render.settings import CLOUDS, Settings, SpotMarks
from rljob_operator.kube.render.template import patched
from rljob_operator.kube.render.volumes import REDIS_DATA, REDIS_SOCKET, mounts, pod_volumes
from rljob_operator.surroundings import DRAIN_SECONDS

SAVE_SECONDS: Final = 60
"""For Redis to write its data once the service has ended, beside the service's own time."""
_MEMORY_SHARE: Final = 0.75
"""Share of a memory limit that the log may fill: above it Redis takes no writes, which the service reports and lives with,
while the kernel would end the whole server. The rest is for what a snapshot copies."""
_PROBE_SECONDS: Final = 5


def sidecar(job: RLJob, settings: Settings) -> dict[str, Any]:
    """The init container ``redis``, of the shard's own image or of ``replay.redis.image``."""
    redis = job.spec.required_replay.redis
    module = ["python", "-m", "rljob.replay.redis_server"]
    folder, socket, mode = names.REDIS_DATA_DIR, names.REDIS_SOCKET, redis.persistence.mode
    largest_bytes = int(quantity(redis.resources.limits.get("memory", "0")) * _MEMORY_SHARE)
    if redis.image is None:
        command = [*module, "serve", folder, socket, mode, str(largest_bytes)]
        question = [*module, "ping", socket]
    else:
        command = ["redis-server", *server_options(folder, socket, mode, largest_bytes=largest_bytes)]
        question = ["redis-cli", "-e", "-s", socket, "ping"]
    return {
        "name": names.REDIS,
        "image": redis.image or image(job, Role.REPLAY, settings),
        "command": command,
        "restartPolicy": "Always",
        "resources": resources(redis.resources, settings.redis_requests),
        "volumeMounts": [
            {"name": REDIS_DATA, "mountPath": folder},
            {"name": REDIS_SOCKET, "mountPath": names.REDIS_SOCKET_DIR},
        ],
        "startupProbe": {  # it answers once it has read its data; only then the service begins
            "exec": {"command": question},
            "periodSeconds": 1,
            "timeoutSeconds": _PROBE_SECONDS,
            "failureThreshold": job.spec.startup_deadline_seconds,
        },
        "securityContext": restricted(),
    }


_LAST_SECONDS: Final = 15
"""For a tracker's last points, once the learner has ended."""
_OF_A_TRACKER: Final = {"cpu": "50m", "memory": "256Mi"}
_MOUNTED: Final = frozenset({names.RUN_DIR, names.JOB_DIR, "/tmp"})


def trackers(owned: Owned, settings: Settings) -> list[dict[str, Any]]:
    """The init containers ``tracker-<name>``, of the learner's own image. They read what the learner writes and send it on, start
    before it and end after it, may fail as they like, and alone have the credentials."""
    job, tracking = owned.job, owned.job.spec.tracking
    secret = tracking.secret_ref if tracking is not None else None
    credentials = {"envFrom": [{"secretRef": {"name": secret.name}}]} if secret is not None else {}
    plain = {IDENTITY_VARIABLE: owned.uid, "HOME": "/tmp", "USER": "rljob"}
    job_file = f"{names.JOB_DIR}/{names.JOB_FILE}"
    return [
        {
            "name": f"tracker-{name}",
            "image": image(job, Role.LEARNER, settings),
            "command": ["python", "-m", "rljob.tracking.sender", names.RUN_DIR, name, "--job", job_file],
            "restartPolicy": "Always",
            "env": [{"name": each, "value": value} for each, value in plain.items()],
            **credentials,
            "resources": {"requests": _OF_A_TRACKER},
            "volumeMounts": [each for each in mounts(job, "learner", settings) if each["mountPath"] in _MOUNTED],
            "securityContext": restricted(),
        }
        for name in trackers_of(tracking)
    ]


_GPU_WEIGHT: Final = 60
"""Weight of the preference to keep off nodes with a GPU, from 1 to 100: above that for spot nodes."""
_ARCHITECTURE: Final = "kubernetes.io/arch"
_SPREAD: Final = {"Preferred": "ScheduleAnyway", "Required": "DoNotSchedule"}


def as_written(job: RLJob, role: Role) -> dict[str, Any]:
    """The part of a PodSpec about the node that the manifest has fields for; podTemplate may change it."""
    given, found = section(job, role), dict[str, Any]()
    for name, value in (("nodeSelector", given.node_selector), ("tolerations", given.tolerations)):
        if value:
            found[name] = copy.deepcopy(value)
    if role is Role.ACTOR and job.spec.actors.topology_spread != "None":
        found["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": _SPREAD[job.spec.actors.topology_spread],
                "labelSelector": {"matchLabels": names.role_labels(job.metadata.name, role)},
            }
        ]
    return found


def placed(spec: Mapping[str, Any], job: RLJob, role: Role, settings: Settings) -> dict[str, Any]:
    """A copy of a PodSpec that has podTemplate in it already, with what the job's image, device and wish for spot nodes ask of a
    node, beside its own affinity and tolerations."""
    given, found = section(job, role), copy.deepcopy(dict(spec))
    if role is Role.ACTOR and job.spec.actors.spot:
        found = on_spot_nodes(found, settings.spot)
    if settings.architectures and not (
        given.image or job.spec.image or _ARCHITECTURE in (found.get("nodeSelector") or ())
    ):
        of_images = {"kubernetes.io/os": ["linux"], _ARCHITECTURE: list(settings.architectures)}
        _require(found, [{"key": key, "operator": "In", "values": values} for key, values in of_images.items()])
    if devices := device(job, role):  # whose owners may keep nodes free for them: by custom the taint's key is the name
        tolerated = at(found, "tolerations", [])
        wanted = ({"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in devices)
        tolerated.extend([each for each in wanted if each not in tolerated])
    elif not any(
        "/" in name for name in (*given.resources.requests, *given.resources.limits)
    ):  # of an extended resource
        _keep_off_gpu_nodes(found, settings)
    return found


def _keep_off_gpu_nodes(spec: dict[str, Any], settings: Settings) -> None:
    """Add a node affinity, preferred or required, to nodes without any of the labels that GPU nodes have."""
    labels = settings.gpu_node_labels
    sent_there = any(label in (spec.get("nodeSelector") or {}) for label in labels)
    if settings.keep_off_gpu_nodes == "None" or sent_there or not labels:
        return
    expressions = [{"key": label, "operator": "DoesNotExist"} for label in labels]
    if settings.keep_off_gpu_nodes == "Required":
        _require(spec, expressions)
    else:
        of_nodes = at(at(spec, "affinity", {}), "nodeAffinity", {})
        preferred = {"weight": _GPU_WEIGHT, "preference": {"matchExpressions": expressions}}
        at(of_nodes, "preferredDuringSchedulingIgnoredDuringExecution", []).append(preferred)


def _require(spec: dict[str, Any], expressions: list[dict[str, Any]]) -> None:
    """Add a required node affinity, beside what its user requires."""
    of_nodes = at(at(spec, "affinity", {}), "nodeAffinity", {})
    terms = at(at(of_nodes, "requiredDuringSchedulingIgnoredDuringExecution", {}), "nodeSelectorTerms", [])
    if not terms:
        terms.append({})
    for term in terms:  # any one of them is enough, so each has to say it
        if isinstance(term, dict):
            at(term, "matchExpressions", []).extend(expressions)


_SPOT_WEIGHT: Final = 50
"""Weight of each preference, from 1 to 100: in the middle, so that preferences of the job's own can be put above it or below."""


PLAY_ON_SECONDS: Final = 10
"""An actor that is to leave plays on for so long, while the one in its place starts. Clouds give 30 seconds' notice and more, of
which a kubelet that shuts its node down may leave pods 15."""


def playing_on(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of an actor's PodSpec that is told to leave ``PLAY_ON_SECONDS`` later, and may take as much longer.

    A pod can't know why it is to leave, so that one which the operator takes away plays on, too.
    """
    return {
        **pod,
        "terminationGracePeriodSeconds": pod["terminationGracePeriodSeconds"] + PLAY_ON_SECONDS,
        "containers": [
            {**each, "lifecycle": {"preStop": {"exec": {"command": ["sleep", f"{PLAY_ON_SECONDS}"]}}}}
            for each in pod["containers"]
        ],
    }


def on_spot_nodes(pod: Mapping[str, Any], marks: SpotMarks = CLOUDS) -> dict[str, Any]:
    """A copy of the PodSpec ``pod`` that may go to spot nodes and prefers them, beside what it had before.

    Each cloud marks its spot nodes in its own way. Where a node is tainted by default the pod needs a toleration, or it never
    gets there; a label says which nodes to prefer. No cloud's marks mean anything on another, so all of them are put into a pod.
    A preference is no demand: who wants nothing but spot nodes writes their label into ``actors.nodeSelector``. What a job has
    written there in a wrong form stays as it is, for the API server to refuse.
    """
    changed = copy.deepcopy(dict(pod))
    tolerations = at(changed, "tolerations", [])
    of_nodes = at(at(changed, "affinity", {}), "nodeAffinity", {})
    preferences = at(of_nodes, "preferredDuringSchedulingIgnoredDuringExecution", [])
    for key, value in marks.taints:
        wanted = {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
        if wanted not in tolerations:
            tolerations.append(wanted)
    for key, value in marks.labels:
        preferences.append(
            {
                "weight": _SPOT_WEIGHT,
                "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]},
            }
        )
    return changed


_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
"""Whose log `kubectl logs` shows, and where `kubectl exec` goes, where a pod has sidecars."""
_KUBELET_SECONDS: Final = 5
"""Between the order to end a pod and the signal in its container, and back."""


def pod(owned: Owned, member: str, suffix: str, revision: str, settings: Settings) -> dict[str, Any]:
    """The pod of ``member``, named with ``suffix``; ``revision`` is what it is made from (`revision`).

    Raises `PodProblem` where the manifest's own fields of the role make no pod that the controller could work with.
    """
    job, role, labels = owned.job, Role.of(member), names.member_labels(owned.name, member)
    keeps = role in (Role.LEARNER, Role.REPLAY)
    generated = {
        "metadata": {
            **owned.metadata(names.pod(owned.name, member, suffix), labels),
            "annotations": {
                _DEFAULT_CONTAINER: names.WORKER,
                names.REVISION_ANNOTATION: revision,
                # Cluster autoscalers may take nodes whose pods can start elsewhere at little cost.
                _SAFE_TO_EVICT: "false" if keeps else "true",
                **({_DO_NOT_DISRUPT: "true"} if keeps else {}),
                **(external_redis.marks(external_redis_of(job)) if role is Role.REPLAY else {}),
            },
        },
        "spec": _spec(owned, member, settings),
    }
    path = f"spec.{section_name(role)}.podTemplate"
    made = patched(generated, section(job, role).pod_template, path)
    return _completed({"apiVersion": "v1", "kind": "Pod", **made, "spec": placed(made["spec"], job, role, settings)})


def _completed(pod: dict[str, Any]) -> dict[str, Any]:
    """Every container that fails leaves what it printed last, unless its own policy is written: the job's status repeats it. A
    pod in its node's network asks the cluster's name server all the same: the node's own knows no member of a job."""
    told = {
        kind: [
            {"terminationMessagePolicy": "FallbackToLogsOnError", **each} if isinstance(each, dict) else each
            for each in pod["spec"][kind]
        ]
        for kind in ("initContainers", "containers")
        if isinstance(pod["spec"].get(kind), list)
    }
    names_of_cluster = {"dnsPolicy": "ClusterFirstWithHostNet"} if pod["spec"].get("hostNetwork") else {}
    return {**pod, "spec": {**names_of_cluster, **pod["spec"], **told}}


def grace_seconds(job: RLJob, role: Role) -> int:
    """How long a pod of the role may take to end: what its role may, a Redis or trackers beside it, and the kubelet."""
    saving = SAVE_SECONDS if role is Role.REPLAY and has_own_redis(job) else 0
    sending = _LAST_SECONDS if role is Role.LEARNER and trackers_of(job.spec.tracking) else 0
    return math.ceil(DRAIN_SECONDS[role]) + saving + sending + _KUBELET_SECONDS


def _spec(owned: Owned, member: str, settings: Settings) -> dict[str, Any]:
    job, role, secrets = owned.job, Role.of(member), owned.job.spec.image_pull_secrets
    beside = [sidecar(job, settings)] if role is Role.REPLAY and has_own_redis(job) else []
    beside += trackers(owned, settings) if member in LEADERS else []
    found = {
        "hostname": member,
        "subdomain": names.service(job.metadata.name),
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds(job, role),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # they would come as variables, one for each Service of the namespace
        "securityContext": _security(settings),
        "containers": [worker(owned, member, settings)],
        "volumes": pod_volumes(owned, member, settings),
        **({"initContainers": beside} if beside else {}),
        **({"imagePullSecrets": [{"name": each.name} for each in secrets]} if secrets else {}),
        **as_written(job, role),
    }
    return playing_on(found) if role is Role.ACTOR and job.spec.actors.spot else found


def _security(settings: Settings) -> dict[str, Any]:
    """The pod's part of what Pod Security `restricted` demands; its volumes belong to the containers' group."""
    found: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if settings.run_as_user is not None:
        user = settings.run_as_user
        found |= {"runAsUser": user, "runAsGroup": user, "fsGroup": user, "fsGroupChangePolicy": "OnRootMismatch"}
    return found

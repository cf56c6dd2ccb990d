"""What other objects than a job's members look like: the RLJob of an experiment's run, a part of its journal, the pod that judges
a run, the pod that reads a job's claim while no learner has it, a note that outlives the job, and what a job asks a queue of
Kueue for: Workloads, made of the pods that it would have.

One Workload is the job's core, with the job's name: replay shards, learner, inference servers, evaluator, and the fewest actors
that it may run with. They start all or none. Every other actor is in a block, a Workload of its own, because what a queue has
admitted can't be changed: more actors are another block, fewer give a block back.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from posixpath import normpath
from typing import Any, Final

from rljob.api.experiment import EXPERIMENT_KIND
from rljob.api.experiment_trials import Experiment
from rljob.api.job import API_VERSION, KIND
from rljob.api.status import RLJobStatus

from rljob_operator.core.member import Role
from rljob_operator.experiments.state import Run
from rljob_operator.kube.render import names
from rljob_operator.kube.render.containers import resources, restricted
from rljob_operator.kube.render.metadata import Owned, handed_on
from rljob_operator.kube.render.pod import pod, trackers
from rljob_operator.kube.render.roles import section
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import checkpoint_claim, makes_checkpoint_claim

Object = dict[str, Any]
JOURNAL_KEY: Final = "journal.jsonl"
_OF_KUEUE: Final = "kueue.x-k8s.io/"
_JUDGE: Final = f'exec rljob eval "$@" --json --summary > {names.TERMINATION_LOG}'
_OF_A_LEARNER: Final = ("args", "ports", "startupProbe", "livenessProbe", "readinessProbe", "lifecycle")
"""What a container has for being a learner."""

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""On an RLJob: the LocalQueue of its namespace that it queues in."""
PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
"""On an RLJob: the WorkloadPriorityClass that decides its place in the queue."""
ASKED_FOR_ANNOTATION: Final = "rljob.dev/asked-for"
"""On a Workload: a digest of what it asks for, since an API server adds to what it is given."""
WORKLOAD_ANNOTATION: Final = "rljob.dev/workload"
"""On an actor's pod: the Workload whose quota it uses."""

_OF_A_POD: Final = (
    "nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName", "overhead", "resourceClaims",
    "restartPolicy",
)  # fmt: skip
_OF_A_CONTAINER: Final = ("name", "image", "resources", "restartPolicy")


def run(owner: Object, experiment: Experiment, of: Run) -> Object:
    """The RLJob of a run as it is to be now. It queues at Kueue by the labels of the template, or of the experiment itself."""
    made = experiment.manifest(of.trial, of.seed, experiment.raw_frames, of.overrides or None)
    labels = {
        **_of_queue(owner["metadata"].get("labels") or {}),
        **made["metadata"].get("labels", {}),
        names.TRIAL_LABEL: str(of.trial),
        names.SEED_LABEL: str(of.seed),
    }
    return {
        **made,
        "metadata": {
            **_metadata(owner, made["metadata"]["name"], labels),
            "annotations": made["metadata"].get("annotations", {}),
        },
    }


def journal_part(owner: Object, number: int, text: str) -> Object:
    """A ConfigMap with lines of the journal."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(owner, names.journal(owner["metadata"]["name"], number), {}),
        "data": {JOURNAL_KEY: text},
    }


def judge(owned: Owned, settings: Settings, experiment: str, name: str, words: Sequence[str]) -> Object:
    """The pod that plays a run's games, by the options ``words`` of `rljob eval`: with all that its learner had, what its
    podTemplate says included, but for trackers; with what an evaluator asks for, and no device. It leaves its figures as its last
    words, and goes with its run. Where its run queues at Kueue, it does, too."""
    made: dict[str, Any] = pod(owned, "learner", "judge", "", settings)
    (worker,) = [each for each in made["spec"]["containers"] if each["name"] == names.WORKER]
    beside = [each for each in made["spec"]["containers"] if each is not worker]
    of_trackers = {each["name"] for each in trackers(owned, settings)}
    before = [each for each in made["spec"].get("initContainers", ()) if each["name"] not in of_trackers]
    evaluator, storage = section(owned.job, Role.EVALUATOR), owned.job.spec.checkpoint.storage
    bucket = storage.object_store if storage is not None else None
    folder = names.RUN_DIR if storage is None else f"{names.RUNS_DIR}/{owned.name}"  # as its other runs see it
    where = bucket.url if bucket is not None else f"{folder}/checkpoints"
    server = (
        [{"name": "AWS_ENDPOINT_URL_S3", "value": bucket.endpoint}] if bucket is not None and bucket.endpoint else []
    )
    container = {
        **{field: value for field, value in worker.items() if field not in _OF_A_LEARNER},
        "env": [*worker.get("env", ()), *server],
        "command": ["sh", "-c", _JUDGE, "judge", where, *words],
        "resources": resources(evaluator.resources, settings.requests[Role.EVALUATOR]),
    }
    # Without the operator's: it is none of the job's members.
    labels = {**handed_on(made["metadata"]["labels"]), names.EXPERIMENT_LABEL: experiment, names.JOB_LABEL: owned.name}
    queue = _of_queue(owned.job.metadata.labels) if settings.kueue else {}
    about = owned.metadata(name, {**labels, **queue})
    if queue:  # Kueue leaves alone what a kind controls that its externalFrameworks name, as RLJobs should be there
        about["ownerReferences"] = [{**each, "controller": False} for each in about["ownerReferences"]]
    spec = {field: value for field, value in made["spec"].items() if field not in ("hostname", "subdomain")}
    return {
        **made,
        "metadata": {
            **about,
            "annotations": {
                key: value for key, value in made["metadata"]["annotations"].items() if not key.startswith(names.OURS)
            },
        },
        "spec": {**spec, "containers": [container, *beside], "initContainers": before},
    }


def _of_queue(labels: Mapping[str, str]) -> dict[str, str]:
    return {label: value for label, value in labels.items() if label.startswith(_OF_KUEUE)}


def _metadata(owner: Object, name: str, labels: Mapping[str, str]) -> Object:
    about = owner["metadata"]
    return {
        "name": name,
        "namespace": about["namespace"],
        "labels": {**labels, names.EXPERIMENT_LABEL: about["name"]},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": EXPERIMENT_KIND,
                "name": about["name"],
                "uid": about["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


_TAKEN_OVER: Final = ("nodeSelector", "affinity", "tolerations", "imagePullSecrets", "securityContext", "serviceAccountName",
                      "runtimeClassName")  # fmt: skip
"""What a reader has from the learner's pod: where its volume can be had, and what a namespace's policies have let in before."""
_OWN: Final = ("restartPolicy", "activeDeadlineSeconds", "automountServiceAccountToken", "containers", "volumes")


def reader(owned: Owned, settings: Settings, longest_seconds: float) -> Object:
    """The pod that reads: with the image, the place, the claim, and the cores and memory of the learner's, which quotas and a
    LimitRange have let in, and nothing else. It ends by itself, and goes with its job where it is not deleted before."""
    learner: dict[str, Any] = pod(owned, "learner", "policy", "", settings)["spec"]
    (worker,) = [each for each in learner["containers"] if each["name"] == names.WORKER]
    mount = next(each for each in worker["volumeMounts"] if normpath(each["mountPath"]) == names.RUN_DIR)
    seconds = int(2 * longest_seconds) + 30
    container = {
        "name": names.WORKER,
        "image": worker["image"],
        "command": ["python", "-c", f"import time; time.sleep({seconds})"],
        "resources": {
            kind: {name: amounts[name] for name in ("cpu", "memory") if name in amounts}
            for kind, amounts in worker["resources"].items()
        },
        "securityContext": worker["securityContext"],
        "volumeMounts": [{**mount, "readOnly": True}],
        **({"imagePullPolicy": worker["imagePullPolicy"]} if "imagePullPolicy" in worker else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": names.pod(owned.name, "policy", ""),
            "namespace": owned.job.metadata.namespace,
            # Without the operator's: it is none of the job's members.
            "labels": {**handed_on(owned.job.metadata.labels), names.JOB_LABEL: owned.name},
            "ownerReferences": [{"apiVersion": API_VERSION, "kind": KIND, "name": owned.name, "uid": owned.uid}],
        },
        "spec": {
            **{field: learner[field] for field in _TAKEN_OVER if field in learner},
            "restartPolicy": "Never",
            "activeDeadlineSeconds": seconds,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [each for each in learner["volumes"] if each["name"] == mount["name"]],
        },
    }


def only_reads(pod: Mapping[str, Any], namespace: str) -> bool:
    """Whether a pod that was noted is one that `reader` could have made, as far as rights go: it is made with those of the user
    who asks, who may have more than whoever may write the note."""
    try:
        spec, (container,) = pod["spec"], pod["spec"]["containers"]
        return (
            pod["metadata"]["namespace"] == namespace
            and {*spec} <= {*_TAKEN_OVER, *_OWN}
            and spec["automountServiceAccountToken"] is False
            and all({*each} == {"name", "persistentVolumeClaim"} for each in spec["volumes"])
            and restricted().items() <= container["securityContext"].items()
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        return False


READ_SECONDS: Final = 120.0
"""A pod that reads a recording may wait so long for its node, and be asked for so long."""


def note(document: Mapping[str, Any], owned: Owned, settings: Settings, status: RLJobStatus) -> Object:
    """What `rljob report` has to know of a job that may be gone.

    ``name``, ``uid``, ``created``: which it is; ``of``: the uid of its experiment, else its own. Where its recording is: ``url``
    and ``endpoint`` of a bucket, or the ``pod`` that reads its claim, or neither; whether that ``outlives`` it. ``outcome`` and
    ``status``: as files of a run folder have them.
    """
    about, storage = document["metadata"], owned.job.spec.checkpoint.storage
    owners = [each["uid"] for each in about.get("ownerReferences") or () if each["kind"] == EXPERIMENT_KIND]
    found = {"name": owned.name, "uid": owned.uid, "created": about["creationTimestamp"], "of": [*owners, owned.uid][0]}
    if storage is not None and storage.object_store is not None:
        found |= {"url": storage.object_store.url, "endpoint": storage.object_store.endpoint}
    elif checkpoint_claim(owned.job, settings) is not None:
        found["pod"] = reader(owned, settings, READ_SECONDS)
    found["outlives"] = len(found) > 4 and not makes_checkpoint_claim(owned.job, settings)
    if (end := status.controller.outcome) is not None:
        times = {"started_unix": status.start_time, "finished_unix": end.time, "seconds": status.active_seconds}
        found["outcome"] = {"state": end.state, "reason": end.reason, "message": end.message, **times}
    return {**found, "status": {"failures": [each.document() for each in status.failures]}}


def queue_of(document: Mapping[str, Any]) -> str:
    """The queue that a stored job names; empty for one that does not queue."""
    return str((document["metadata"].get("labels") or {}).get(QUEUE_LABEL) or "")


def block_name(job: str, number: int) -> str:
    """The Workload of a block of actors. A job's name has no dot, so that no other job's core is called so."""
    return f"{job}.actors-{number}"


def block_number(job: str, name: str) -> int | None:
    """The number of a block of actors; None for any other Workload of the job."""
    number = name.removeprefix(f"{job}.actors-")
    return int(number) if number.isdecimal() else None


def core_sets(owned: Owned, settings: Settings) -> list[dict[str, Any]]:
    """The sets of pods of the job's core. Raises `PodProblem`."""
    scaling, fixed = owned.job.spec.autoscaling, owned.job.spec.actors.replicas
    counts = Counter(map(Role.of, names.first_members(owned.job)))
    counts[Role.ACTOR] = min(scaling.min_replicas, fixed) if scaling.mode == "Disabled" else scaling.min_replicas
    return [pod_set(owned, role, count, settings) for role, count in counts.items() if count]


def pod_set(owned: Owned, role: Role, count: int, settings: Settings) -> dict[str, Any]:
    """``count`` pods of a role, with the fields that a queue uses."""
    numbered = role in (Role.REPLAY, Role.INFERENCE, Role.ACTOR)
    first = owned.job.spec.learner.members[0] if role is Role.LEARNER else f"{role}-0" if numbered else str(role)
    spec = pod(owned, first, "", "", settings)["spec"]
    found = {name: spec[name] for name in _OF_A_POD if name in spec}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            found[kind] = [{name: each[name] for name in _OF_A_CONTAINER if name in each} for each in spec[kind]]
    return {"name": str(role), "count": count, "template": {"spec": found}}


def digest(spec: Mapping[str, Any]) -> str:
    """What `ASKED_FOR_ANNOTATION` says of a Workload that asks for ``spec``."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


def workload(owned: Owned, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The Workload that asks for ``spec``."""
    metadata = {**owned.metadata(name), "annotations": {ASKED_FOR_ANNOTATION: digest(spec)}}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec}

"""What is left of a job for later: the pod that reads its claim while no learner has it, and a note that outlives the job."""

from collections.abc import Mapping
from posixpath import normpath
from typing import Any, Final

from rljob.api.experiment import EXPERIMENT_KIND
from rljob.api.job import API_VERSION, KIND
from rljob.api.status import RLJobStatus

from rljob_operator.kube.render import names
from rljob_operator.kube.render.containers import restricted
from rljob_operator.kube.render.metadata import Owned, handed_on
from rljob_operator.kube.render.pod import pod
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import checkpoint_claim, makes_checkpoint_claim

Object = dict[str, Any]
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

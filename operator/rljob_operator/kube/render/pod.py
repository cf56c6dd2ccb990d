"""The pod of one member of a job."""

from __future__ import annotations

import math
from typing import Any, Final

from rljob.api import RLJob
from rljob.tracking.tracker import trackers_of

from rljob_operator.core.member import Role
from rljob_operator.kube.render import external_redis, names, trackers
from rljob_operator.kube.render.containers import worker
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.placement import as_written, placed
from rljob_operator.kube.render.redis import SAVE_SECONDS, sidecar
from rljob_operator.kube.render.roles import external_redis_of, has_own_redis, section, section_name
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.spot import playing_on
from rljob_operator.kube.render.template import patched
from rljob_operator.kube.render.volumes import pod_volumes
from rljob_operator.surroundings import DRAIN_SECONDS

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
    job, role = owned.job, Role.of(member)
    labels = names.member_labels(owned.name, member)
    generated = {
        "metadata": {
            **owned.metadata(names.pod(owned.name, member, suffix), labels),
            "annotations": {
                _DEFAULT_CONTAINER: names.WORKER,
                names.REVISION_ANNOTATION: revision,
                **_about_eviction(role),
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
    sending = trackers.LAST_SECONDS if role is Role.LEARNER and trackers_of(job.spec.tracking) else 0
    return math.ceil(DRAIN_SECONDS[role]) + saving + sending + _KUBELET_SECONDS


def _spec(owned: Owned, member: str, settings: Settings) -> dict[str, Any]:
    job, role, secrets = owned.job, Role.of(member), owned.job.spec.image_pull_secrets
    beside = [sidecar(job, settings)] if role is Role.REPLAY and has_own_redis(job) else []
    beside += trackers.sidecars(owned, settings) if role is Role.LEARNER else []
    found = {
        "hostname": member,
        "subdomain": names.service(job.metadata.name),
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds(job, role),
        "serviceAccountName": names.service_account(job.metadata.name),
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


def _about_eviction(role: Role) -> dict[str, str]:
    """For cluster autoscalers: nodes may go when all their pods can start elsewhere at little cost."""
    if role in (Role.LEARNER, Role.REPLAY):
        return {_SAFE_TO_EVICT: "false", _DO_NOT_DISRUPT: "true"}
    return {_SAFE_TO_EVICT: "true"}

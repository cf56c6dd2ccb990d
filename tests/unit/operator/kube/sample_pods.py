"""Pods as a real API server sends them once a kubelet has started them, with everything that is not kept."""

from typing import Any


def job_owner(job: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "name": job,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def running_pod(
    number: int = 0, job: str = "pong", job_uid: str = "8a3f27f5-6a7d-43f7-8f8e-51b2a5f10000", **metadata: Any
) -> dict[str, Any]:
    """The pod of an actor that runs, with a sidecar and all that a cluster adds."""
    member = f"actor-{number}"
    name = f"{job}-{member}-x7k2p"
    when = f"2026-11-23T11:{number // 60 % 60:02d}:{number % 60:02d}Z"
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"5d0e1f3a-0000-4000-8000-{number:012d}",
            "resourceVersion": str(100_000 + number),
            "creationTimestamp": when,
            "generation": 1,
            "labels": {
                "app.kubernetes.io/managed-by": "rljob",
                "rljob.dev/job": job,
                "rljob.dev/role": "actor",
                "rljob.dev/member": member,
            },
            "annotations": {
                "rljob.dev/revision": "1f2e3d4c",
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
                "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container main" * 10,
            },
            "ownerReferences": [job_owner(job, job_uid)],
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": when,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {f"f:{key}": {} for key in range(40)}},
                }
                for manager in ("rljob-operator", "kubelet")
            ],
            **metadata,
        },
        "spec": {
            "hostname": member,
            "subdomain": job,
            "nodeName": f"gke-pool-{number % 20}",
            "containers": [{"name": "main", "image": "rljob:1", "env": [{"name": f"E{k}", "value": "v"} for k in range(20)]}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": when, "observedGeneration": 1}
                for kind in conditions
            ],
            "hostIP": "10.0.0.7",
            "hostIPs": [{"ip": "10.0.0.7"}],
            "podIP": f"10.1.{number // 250 % 250}.{number % 250}",
            "podIPs": [{"ip": f"10.1.{number // 250 % 250}.{number % 250}"}],
            "startTime": when,
            "qosClass": "Burstable",
            "initContainerStatuses": [container("redis", when)],
            "containerStatuses": [container("main", when)],
        },
    }  # fmt: skip


def container(name: str, when: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "state": {"running": {"startedAt": when}},
        "lastState": {},
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "registry.example/rljob:1",
        "imageID": f"registry.example/rljob@sha256:{'0' * 64}",
        "containerID": f"containerd://{name}{when}{'0' * 40}",
        "resources": {"requests": {"cpu": "1"}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        "user": {"linux": {"uid": 1000, "gid": 1000, "supplementalGroups": [1000]}},
        **fields,
    }

"""What the operator decides where a job leaves it open: its configuration, as far as objects are made from it."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final, Literal

from rljob_operator.core.member import Role

USER_ID: Final = 10001
"""The user and group that the images run as."""
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that every namespace has its own name in."""

GPU_NODE_LABELS: Final = (
    "nvidia.com/gpu.present",
    "amd.com/gpu.device-id",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-count",
    "kubernetes.azure.com/accelerator",
)
"""Labels that nodes with a GPU have: by the feature discovery of NVIDIA and AMD, on GKE, EKS, Karpenter and AKS."""

REQUESTS: Final[Mapping[Role, Mapping[str, str]]] = {
    Role.REPLAY: {"cpu": "500m", "memory": "512Mi"},
    Role.LEARNER: {"cpu": "1", "memory": "1Gi"},
    Role.INFERENCE: {"cpu": "1", "memory": "768Mi"},
    Role.ACTOR: {"cpu": "1", "memory": "640Mi"},
    Role.EVALUATOR: {"cpu": "500m", "memory": "640Mi"},
}
"""What a role's container asks for where the manifest does not say: what its process takes without any experience in it. A pod
that asks for nothing is the first to be evicted, and no cluster autoscaler makes room for it."""
REDIS_REQUESTS: Final[Mapping[str, str]] = {"cpu": "100m", "memory": "256Mi"}
SMALL: Final = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
"""What a container has that reads or removes a few objects: limits too, since a quota of its namespace may demand them."""


@dataclass(frozen=True, slots=True)
class SpotMarks:
    """How spot nodes are marked: (key, value) of their taints, all with effect NoSchedule, and of their labels."""

    taints: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]


CLOUDS: Final = SpotMarks(
    taints=(
        ("cloud.google.com/gke-spot", "true"),
        ("kubernetes.azure.com/scalesetpriority", "spot"),
    ),
    labels=(
        ("cloud.google.com/gke-spot", "true"),
        ("kubernetes.azure.com/scalesetpriority", "spot"),
        ("eks.amazonaws.com/capacityType", "SPOT"),
        ("karpenter.sh/capacity-type", "spot"),
    ),
)
"""Taints of GKE and AKS; EKS and Karpenter put none. Labels of GKE, AKS, a managed node group of EKS, and Karpenter (EKS Auto
Mode is one)."""

CHECKPOINT_SIZE: Final = "4Gi"
"""For the five that are kept, the best one and the one being written, of 600 MB each: a network of 30 million parameters with its
average, its target and what its optimiser remembers. Those of Atari's networks take a tenth of that."""


def default_image() -> str:
    """The image of a job that names none: that of this release."""
    return f"rljob-worker:{version('rljob')}"


def own_architectures() -> tuple[str, ...]:
    """That of the node that this operator runs on, by its name in Kubernetes; none for one outside of a cluster."""
    names, own = {"x86_64": "amd64", "aarch64": "arm64"}, platform.machine()
    return (names.get(own, own),) if "KUBERNETES_SERVICE_HOST" in os.environ else ()


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's choices for the objects that it makes.

    Attributes:
        image: of every role of a job that names none. For a job that runs already it is the one that the job was started with.
        gpu_image: the same for a role that asks for a device; empty takes ``image``.
        architectures: those of nodes that these images run on; empty allows any.
        spot: the marks of spot nodes.
        gpu_node_labels: any of them tells a node with a GPU.
        keep_off_gpu_nodes: whether pods that ask for no device keep off such nodes. Required leaves them pending where every
            node has a GPU.
        operator_namespaces: labels of the namespace from which the operator reads /status.
        prometheus_namespaces: labels of the namespaces from which /metrics may be read; None lets in the operator alone.
        cluster_domain: put behind the names of peers, such as ``cluster.local``; empty leaves it to the pods' resolver.
        run_as_user: user and group of the containers; None leaves it to the namespace, as OpenShift wants it.
        checkpoint_size: size of a volume claim for the checkpoints of a job without ``checkpoint.storage``. Empty for a job that
            started where no such claim would have got a volume: its checkpoints end with its learner's pod.
        checkpoint_class: its StorageClass; empty takes the cluster's default.
        requests, redis_requests: what containers ask for where the manifest does not say.
        kueue: whether jobs that name a queue wait for Kueue's quota.
    """

    image: str
    gpu_image: str = ""
    architectures: tuple[str, ...] = ()
    spot: SpotMarks = CLOUDS
    gpu_node_labels: tuple[str, ...] = GPU_NODE_LABELS
    keep_off_gpu_nodes: Literal["Preferred", "Required", "None"] = "Preferred"
    operator_namespaces: Mapping[str, str] = field(
        hash=False, default_factory=lambda: {NAMESPACE_LABEL: "rljob-system"}
    )
    prometheus_namespaces: Mapping[str, str] | None = field(
        hash=False, default_factory=lambda: {NAMESPACE_LABEL: "monitoring"}
    )
    cluster_domain: str = ""
    run_as_user: int | None = USER_ID
    checkpoint_size: str = CHECKPOINT_SIZE
    checkpoint_class: str = ""
    requests: Mapping[Role, Mapping[str, str]] = field(hash=False, default_factory=lambda: REQUESTS)
    redis_requests: Mapping[str, str] = field(hash=False, default_factory=lambda: REDIS_REQUESTS)
    kueue: bool = False

    def __post_init__(self) -> None:
        if not self.image:
            raise ValueError("Settings.image is empty: pods of jobs that name no image would have none")
        if self.run_as_user == 0:
            raise ValueError("Settings.run_as_user is 0: no pod may run as root where Pod Security is `restricted`")

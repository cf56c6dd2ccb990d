"""The file of ``rljob operator --config``: what an administrator decides where jobs leave it open, as typed YAML.

It is the written form of `rljob_operator.kube.render.settings.Settings`. A chart mounts it from a ConfigMap.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError
from rljob.api.controller_memory import MAX_SETTINGS
from rljob.api.document import parse_document
from rljob.api.problems import ABSENT, ManifestError, Problem
from rljob.api.roles import Amounts, ContainerImage, Labels
from rljob.api.structure import structural_problems
from rljob.api.types import APIModel, Flag, Integer, Quantity, Text

from rljob_operator.core.member import Role
from rljob_operator.kube.render.rendering import as_text
from rljob_operator.kube.render.settings import (
    CHECKPOINT_SIZE,
    CLOUDS,
    GPU_NODE_LABELS,
    NAMESPACE_LABEL,
    REDIS_REQUESTS,
    REQUESTS,
    USER_ID,
    Settings,
    SpotMarks,
    default_image,
    own_architectures,
)

AT_ONCE: Final = ("prometheusNamespaces",)
"""Fields that count at once, also for jobs that run: no pod is made with them. All others a job keeps as it was started with."""

Key = Annotated[str, Text(253, "the key of a label or a taint")]
Architecture = Annotated[str, Text(63, "an architecture such as amd64")]


class Mark(APIModel):
    """A label of nodes, or a taint of theirs with effect NoSchedule."""

    key: Key
    """Its key."""
    value: Annotated[str, Text(63, "the value of a label or a taint", shortest=0)]
    """Its value."""


class SpotNodes(APIModel):
    """How spot nodes are marked. A list that is given stands in the place of the built-in one, that of the big clouds."""

    taints: Annotated[list[Mark], Field(max_length=32)] = Field(
        default_factory=lambda: [Mark(key=key, value=value) for key, value in CLOUDS.taints]
    )
    """Taints with effect NoSchedule; actors with ``spot: true`` tolerate them."""
    labels: Annotated[list[Mark], Field(max_length=32)] = Field(
        default_factory=lambda: [Mark(key=key, value=value) for key, value in CLOUDS.labels]
    )
    """Labels of such nodes; actors with ``spot: true`` prefer them."""


class GPUNodes(APIModel):
    """How nodes with a GPU are told, and who keeps off them."""

    labels: Annotated[list[Key], Field(max_length=32)] = Field(default_factory=lambda: list(GPU_NODE_LABELS))
    """Keys of labels; a node with a GPU has at least one of them."""
    keep_off: Literal["Preferred", "Required", "None"] = "Preferred"
    """Whether pods without a device avoid such nodes. Required leaves them pending if every node has a GPU."""


class CheckpointClaim(APIModel):
    """The volume claim for the checkpoints of a job without ``checkpoint.storage``; it goes with the job."""

    size: Quantity = CHECKPOINT_SIZE
    """Its size."""
    storage_class: Annotated[str, Text(253, "a StorageClass", shortest=0)] = ""
    """Its StorageClass. Empty: the cluster's default; without one no claim is made."""


class Kueue(APIModel):
    """Quota by Kueue, for jobs with the label ``kueue.x-k8s.io/queue-name``."""

    enabled: Flag = False
    """Jobs with the label kueue.x-k8s.io/queue-name wait until Kueue admits them. Otherwise the label has no effect."""


class RoleRequests(APIModel):
    """What containers ask for where the manifest does not say. A resource that is not named keeps what it has built in."""

    replay: Amounts = Field(default_factory=lambda: dict(REQUESTS[Role.REPLAY]))
    """Requests of a replay shard's service."""
    learner: Amounts = Field(default_factory=lambda: dict(REQUESTS[Role.LEARNER]))
    """Requests of the learner."""
    inference: Amounts = Field(default_factory=lambda: dict(REQUESTS[Role.INFERENCE]))
    """Requests of an inference server."""
    actor: Amounts = Field(default_factory=lambda: dict(REQUESTS[Role.ACTOR]))
    """Requests of an actor."""
    evaluator: Amounts = Field(default_factory=lambda: dict(REQUESTS[Role.EVALUATOR]))
    """Requests of the evaluator."""
    redis: Amounts = Field(default_factory=lambda: dict(REDIS_REQUESTS))
    """Requests of the Redis server beside a replay shard."""


class OperatorConfiguration(APIModel):
    """The whole file; every field may be left out."""

    image: ContainerImage | None = None
    """Image of roles without one of their own. Default: that of the operator's release."""
    gpu_image: ContainerImage | None = None
    """The same for a role with a device. Default: ``image`` if given, else the release's image for a GPU."""
    architectures: Annotated[list[Architecture], Field(max_length=8)] | None = None
    """Architectures (``kubernetes.io/arch``) of these images. A pod without an image of its own and without an architecture in
    its nodeSelector goes only to such nodes with Linux. Default: that of the operator's node; an empty list allows any node."""
    spot: SpotNodes = Field(default_factory=SpotNodes)
    """How spot nodes are marked."""
    gpu_nodes: GPUNodes = Field(default_factory=GPUNodes)
    """How nodes with a GPU are recognised."""
    prometheus_namespaces: Labels = Field(default_factory=lambda: {NAMESPACE_LABEL: "monitoring"})
    """Labels of namespaces that may read the metrics of jobs. Empty: only the operator may."""
    cluster_domain: Annotated[str, Text(253, "a DNS domain", r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", shortest=0)] = ""
    """Suffix of peers' names, such as ``cluster.local``. Empty: the pods' resolver decides."""
    run_as_user: Annotated[int, Integer(1, 2**31 - 1)] = USER_ID
    """User and group of the containers."""
    user_from_namespace: Flag = False
    """Set no user in pods; the namespace assigns one, as on OpenShift."""
    checkpoint_claim: CheckpointClaim = Field(default_factory=CheckpointClaim)
    """The claim for checkpoints of a job without ``checkpoint.storage``."""
    kueue: Kueue = Field(default_factory=Kueue)
    """Quota by Kueue."""
    requests: RoleRequests = Field(default_factory=RoleRequests)
    """Requests of containers for which the manifest has none."""


def read_configuration(path: Path) -> OperatorConfiguration:
    """The configuration in a file. Raises ManifestError with every problem that was found, each with its place."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ManifestError([Problem(str(path), ABSENT, f"cannot be read: {error.strerror or error}")]) from None
    return checked(parse_document(text, str(path)), str(path))


def checked(document: Mapping[str, Any], source: str) -> OperatorConfiguration:
    """The configuration that a document is. ``source`` names the document in problems. Raises ManifestError."""
    try:
        found = OperatorConfiguration.model_validate(document, by_alias=True, by_name=False)
        size = len(as_text(settings_of(found, "")))
        if size > MAX_SETTINGS:
            words = f"with it {size:,} characters would have to be remembered in each job's status; allowed: {MAX_SETTINGS:,}"
            raise ManifestError([Problem(source, ABSENT, words)])
        return found
    except ValidationError as error:
        problems = structural_problems(error, OperatorConfiguration)
        raise ManifestError(Problem(f"{source}: {each.path}", each.value, each.message) for each in problems) from None


def settings_of(given: OperatorConfiguration, operator_namespace: str, image: str | None = None) -> Settings:
    """The settings that a configuration means. ``image`` wins over the one in it."""

    def pairs(marks: list[Mark]) -> tuple[tuple[str, str], ...]:
        return tuple((mark.key, mark.value) for mark in marks)

    return Settings(
        image=image or given.image or default_image(),
        gpu_image=given.gpu_image or ("" if image or given.image else f"{default_image()}-gpu"),
        architectures=own_architectures() if given.architectures is None else tuple(given.architectures),
        spot=SpotMarks(taints=pairs(given.spot.taints), labels=pairs(given.spot.labels)),
        gpu_node_labels=tuple(given.gpu_nodes.labels),
        keep_off_gpu_nodes=given.gpu_nodes.keep_off,
        operator_namespaces={NAMESPACE_LABEL: operator_namespace},
        prometheus_namespaces=given.prometheus_namespaces or None,
        cluster_domain=given.cluster_domain,
        run_as_user=None if given.user_from_namespace else given.run_as_user,
        checkpoint_size=given.checkpoint_claim.size,
        checkpoint_class=given.checkpoint_claim.storage_class,
        requests={role: {**REQUESTS[role], **getattr(given.requests, role)} for role in Role},
        redis_requests={**REDIS_REQUESTS, **given.requests.redis},
        kueue=given.kueue.enabled,
    )

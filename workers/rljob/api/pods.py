"""What every role's pods have in common: fields of a PodSpec under their own names, and a patch for all the others."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from rljob.api.mutability import UNLEARNED, WHILE_SUSPENDED
from rljob.api.types import APIModel, Name, QuantityText, Text, quantity, refuse

LabelText = Annotated[str, Text(253, "a label or annotation", shortest=0)]
ResourceName = Annotated[
    str,
    Text(
        253,
        'a qualified resource name such as "cpu", "memory" or "nvidia.com/gpu"',
        r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    ),
]
Amounts = Annotated[dict[ResourceName, Annotated[str, QuantityText(fractions=True)]], Field(max_length=16)]
Labels = Annotated[dict[LabelText, LabelText], Field(max_length=64)]


class SecretRef(APIModel):
    """A Secret of the job's namespace."""

    name: Annotated[str, Text(253, "a Secret")]
    """The name of a Secret in the job's namespace."""


class Resources(APIModel):
    """What a container asks for and may use, as in Kubernetes."""

    requests: Amounts = Field(default_factory=dict)
    """What the scheduler reserves."""
    limits: Amounts = Field(default_factory=dict)
    """What the container may not exceed."""

    def cores(self) -> int:
        """Whole processor cores that the container may use: its limit, or else its request; at least 1."""
        return max(1, int(quantity(self.limits.get("cpu") or self.requests.get("cpu", "1"))))


class CoreEntry(APIModel):
    """An entry of a list whose type is Kubernetes' own: the field that tells the entries apart, and whatever else it holds.

    The rest is kept as it is written. The API server checks it when pods are made; the schemas of core would not fit here five
    times over.
    """

    model_config = ConfigDict(extra="allow")


class EnvVar(CoreEntry):
    """An environment variable: ``value``, or ``valueFrom``."""

    name: Annotated[str, Text(253, "an environment variable")]
    """The name of the variable."""

    @model_validator(mode="after")
    def _has_a_text(self) -> Self:
        if not isinstance((self.model_extra or {}).get("value", ""), str | None):
            raise refuse("allowed: a value that is a text (quote a number, on and true)")
        return self


class Volume(CoreEntry):
    """A volume of the pod, with one source: ``configMap``, ``secret``, ``persistentVolumeClaim`` and so on."""

    name: Name
    """The name of the volume, by which volumeMounts has it."""


class VolumeMount(CoreEntry):
    """Where a volume appears in the role's container: ``name`` is the volume's."""

    mount_path: Annotated[str, Text(1024, "a path in the container")]
    """The folder or file it appears as."""


CoreObject = Annotated[dict[str, Any], Field(max_length=64)]
"""A mapping of one of core's types, kept as it is written."""
ContainerImage = Annotated[str, Text(512, "a container image", r"^[^\s]+$")]


class RoleSpec(APIModel):
    """Base of the roles that run as pods. What a PodSpec has too goes by the same name and has core's own form."""

    resources: Annotated[Resources, WHILE_SUSPENDED, UNLEARNED] = Field(default_factory=Resources)
    """What each pod of the role asks for."""
    image: Annotated[ContainerImage | None, WHILE_SUSPENDED] = None
    """Image of this role alone, in the place of spec.image."""
    env: Annotated[list[EnvVar] | None, Field(max_length=128), WHILE_SUSPENDED] = None
    """Environment variables of the role's container:
    https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/"""
    volumes: Annotated[list[Volume] | None, Field(max_length=32), WHILE_SUSPENDED] = None
    """Volumes beside the role's own: https://kubernetes.io/docs/concepts/storage/volumes/"""
    volume_mounts: Annotated[list[VolumeMount] | None, Field(max_length=32), WHILE_SUSPENDED] = None
    """Where they are mounted in the role's container, as in core's reference of volumes."""
    service_account_name: Annotated[
        Annotated[str, Text(253, "a ServiceAccount")] | None, WHILE_SUSPENDED, UNLEARNED
    ] = None
    """ServiceAccount of the pods; unset: one of the job's own, without rights."""
    node_selector: Annotated[Labels | None, WHILE_SUSPENDED, UNLEARNED] = None
    """Labels a node must have."""
    tolerations: Annotated[list[CoreObject] | None, Field(max_length=32), WHILE_SUSPENDED, UNLEARNED] = None
    """Taints that the pods tolerate: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""
    affinity: Annotated[CoreObject | None, WHILE_SUSPENDED, UNLEARNED] = None
    """Nodes and neighbours the pods seek or avoid: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/"""
    priority_class_name: Annotated[Annotated[str, Text(253, "a PriorityClass")] | None, WHILE_SUSPENDED, UNLEARNED] = (
        None
    )
    """Priority against other pods."""
    runtime_class_name: Annotated[Annotated[str, Text(253, "a RuntimeClass")] | None, WHILE_SUSPENDED, UNLEARNED] = None
    """How nodes run the containers, such as nvidia or gvisor."""
    topology_spread: Annotated[Literal["None", "Preferred", "Required"], WHILE_SUSPENDED, UNLEARNED] = "None"
    """Spread the role's pods over hosts."""
    pod_template: Annotated[CoreObject | None, WHILE_SUSPENDED] = None
    """A patch (metadata, spec) on the generated pod for what has no field here, as of ``kubectl patch --type=strategic``:
    https://kubernetes.io/docs/concepts/workloads/pods/"""

"""What every role's pods have in common: fields of a PodSpec under their own names, and a patch for all the others."""

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from rljob.api.mutability import UNLEARNED, WHILE_SUSPENDED
from rljob.api.types import APIModel, QuantityText, Text, quantity, refuse

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
    """A Secret in the job's namespace."""


class Resources(APIModel):
    """What a container asks for and may use, as in Kubernetes."""

    requests: Amounts = Field(default_factory=dict)
    """What the scheduler reserves."""
    limits: Amounts = Field(default_factory=dict)
    """What the container may not exceed."""

    def cores(self) -> int:
        """Whole processor cores that the container may use: its limit, or else its request; at least 1."""
        return max(1, int(quantity(self.limits.get("cpu") or self.requests.get("cpu", "1"))))


class EnvVar(APIModel):
    """An environment variable: ``value``, or ``valueFrom``. All else beside its name is kept as written. The API server checks
    it when pods are made; its schema would not fit here five times over."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Text(253, "an environment variable")]
    """Name of the variable."""

    @model_validator(mode="after")
    def _has_a_text(self) -> Self:
        if not isinstance((self.model_extra or {}).get("value", ""), str | None):
            raise refuse("allowed: a value that is a text (quote a number, on and true)")
        return self


CoreObject = Annotated[dict[str, Any], Field(max_length=64)]
"""A mapping of one of core's types, kept as it is written."""
ContainerImage = Annotated[str, Text(512, "a container image", r"^[^\s]+$")]


class RoleSpec(APIModel):
    """Base of the roles that run as pods. What a PodSpec has too goes by the same name and has core's own form."""

    resources: Annotated[Resources, WHILE_SUSPENDED, UNLEARNED] = Field(default_factory=Resources)
    """Resources of each pod."""
    image: Annotated[ContainerImage | None, WHILE_SUSPENDED] = None
    """Image of this role, instead of spec.image."""
    env: Annotated[list[EnvVar] | None, Field(max_length=128), WHILE_SUSPENDED] = None
    """Environment variables of the container:
    https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/"""
    node_selector: Annotated[Labels | None, WHILE_SUSPENDED, UNLEARNED] = None
    """Labels that a node must have."""
    tolerations: Annotated[list[CoreObject] | None, Field(max_length=32), WHILE_SUSPENDED, UNLEARNED] = None
    """Taints that the pods tolerate: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""
    pod_template: Annotated[CoreObject | None, WHILE_SUSPENDED] = None
    """Patch (metadata, spec) on the generated pod, as for ``kubectl patch --type=strategic``: volumes, affinity,
    serviceAccountName ... The role's container is named worker: https://kubernetes.io/docs/concepts/workloads/pods/"""

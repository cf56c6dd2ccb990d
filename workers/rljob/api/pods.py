"""What every role's pods have in common: resources, placement, and the escape hatch of a pod template."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.mutability import WHILE_SUSPENDED
from rljob.api.types import APIModel, Integer, Quantity, Text, quantity

LabelText = Annotated[str, Text(253, "a label or annotation", shortest=0)]
ResourceName = Annotated[
    str,
    Text(
        253,
        'a qualified resource name such as "cpu", "memory" or "nvidia.com/gpu"',
        r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    ),
]
Labels = Annotated[dict[LabelText, LabelText], Field(max_length=64)]


class SecretRef(APIModel):
    """A Secret of the job's namespace."""

    name: Annotated[str, Text(253, "a Secret")]
    """Its name."""


class Resources(APIModel):
    """What a container asks for and may use, as in Kubernetes."""

    requests: dict[ResourceName, Quantity] = Field(default_factory=dict, max_length=16)
    """What the scheduler reserves."""
    limits: dict[ResourceName, Quantity] = Field(default_factory=dict, max_length=16)
    """What the container may not exceed."""

    def cores(self) -> int:
        """Whole processor cores that the container may use: its limit, or else its request; at least 1."""
        return max(1, int(quantity(self.limits.get("cpu") or self.requests.get("cpu", "1"))))


class Toleration(APIModel):
    """A taint that the pods put up with, as in Kubernetes."""

    key: Annotated[str, Text(253, "a taint's key", shortest=0)] = ""
    """The taint's key; empty with operator Exists means every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the value matters."""
    value: Annotated[str, Text(63, "a taint's value", shortest=0)] = ""
    """The taint's value, for Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """The effect tolerated; empty means all."""
    toleration_seconds: Annotated[int, Integer(0)] | None = None
    """How long NoExecute is tolerated."""


class Placement(APIModel):
    """Where the pods of a role go."""

    node_selector: Labels = Field(default_factory=dict)
    """Labels a node must have."""
    tolerations: list[Toleration] = Field(default_factory=list, max_length=32)
    """Taints the pods put up with."""
    priority_class_name: Annotated[str, Text(253, "a PriorityClass", shortest=0)] = ""
    """Priority against other pods."""
    topology_spread: Literal["None", "Preferred", "Required"] = "None"
    """Spread the role's pods over hosts."""


class RoleSpec(APIModel):
    """Base of the roles that run as pods."""

    resources: Annotated[Resources, WHILE_SUSPENDED] = Field(default_factory=Resources)
    """What each pod of the role asks for."""
    placement: Annotated[Placement, WHILE_SUSPENDED] = Field(default_factory=Placement)
    """Where the role's pods go."""
    pod_template: Annotated[dict[str, Any], WHILE_SUSPENDED] = Field(default_factory=dict, max_length=64)
    """Merge patch on the generated pod, for what has no field here."""

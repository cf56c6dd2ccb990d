"""Fields that only a cluster reads: scheduling, network, monitoring."""

from typing import Annotated, Final, Literal

from pydantic import Field

from rljob.api.types import APIModel, Integer, Text

DATA_PORTS: Final = range(5551, 5557)
"""Ports of the pods on which roles talk to each other."""


class CodeSpec(APIModel):
    """Your own files, which every pod unpacks and works in. `rljob run -n` writes this."""

    config_map: Annotated[str, Text(253, "a ConfigMap")]
    """A ConfigMap in the job's namespace, with a tar archive compressed by gzip as its entry code.tar.gz."""
    digest: Annotated[str, Text(71, "sha256: and 64 digits of the archive", r"^sha256:[0-9a-f]{64}$")]
    """The archive that the pods take; a role that finds another one fails the job."""


class Kueue(APIModel):
    """How the job queues, if metadata.labels has kueue.x-k8s.io/queue-name."""

    actor_block_size: Annotated[int, Integer(1, 10_000)] = 16
    """Actors that Kueue admits together."""


class SchedulingSpec(APIModel):
    """How the cluster admits and places the job as a whole."""

    kueue: Kueue = Field(default_factory=Kueue)
    """How the job asks Kueue for quota."""


class NetworkSpec(APIModel):
    """Who may talk to the job's pods, and how."""

    policy: Literal["Enabled", "Disabled"] = "Enabled"
    """A NetworkPolicy that admits only pods of the same job."""
    encryption: Literal["None", "Curve"] = "Curve"
    """Curve encrypts and authenticates every connection between pods."""


class MonitoringSpec(APIModel):
    """How metrics are scraped."""

    metrics_port: Annotated[int, Integer(1024, 65_535)] = 9090
    """Port of /metrics, /healthz, /readyz and /status in each pod."""

"""``spec.replay``: where experience is kept, how it is drawn, and how much faster one side may be than the other."""

import math
from typing import Annotated, Literal

from pydantic import Field

from rljob.api.mutability import LIVE, UNLEARNED, WHILE_SUSPENDED, never
from rljob.api.roles import Resources, RoleSpec, SecretRef
from rljob.api.types import APIModel, Integer, Quantity, Real, Text, quantity

_COUNTED = "with the counts so far, one side would wait long for the other"


class Prioritization(APIModel):
    """Which transitions are drawn (Schaul et al., 2016)."""

    exponent: Annotated[float, Real(0, 1), LIVE] = 0.6
    """Influence of the TD error: 0 draws uniformly, 1 in proportion."""
    importance: Annotated[float, Real(0, 1), LIVE] = 0.4
    """Share of the resulting bias that is corrected."""


class RateLimiter(APIModel):
    """Keeps the number of samples per inserted transition, by holding back whichever side is ahead."""

    samples_per_insert: Annotated[float, Real(0, 10_000)] = 8.0
    """Samples that the learner draws per inserted transition; 0 sets no limit."""
    min_size: Annotated[int, Integer(1)] = 50_000
    """Stored transitions before the first is drawn."""
    error_buffer: Annotated[float, Real(0, 1e15)] = 40_000.0
    """Samples by which learner and actors may drift apart."""


class Persistence(APIModel):
    """How Redis keeps the experience over a restart of its pod."""

    mode: Literal["None", "Snapshot", "AppendOnly"] = "Snapshot"
    """How the log is saved. Snapshot: from time to time. AppendOnly: every write, slower."""
    storage: Quantity | None = None
    """Size of each shard's volume; fixed once made. Unset: three times the shard's capacity at atari.frameSize *
    atari.frameSize / 4 + 64 bytes a transition, or three times its capacityBytes if that is less, rounded up to whole Gi."""
    storage_class_name: Annotated[str, Text(253, "a StorageClass", shortest=0)] = ""
    """Empty: the cluster's default."""


class ExternalRedis(APIModel):
    """A Redis of the user's own, for all shards."""

    url: Annotated[
        str,
        Text(
            512,
            "redis://HOST:PORT/DATABASE, rediss:// or unix:///PATH, without a user",
            r"^(rediss?://([^@?#/:\[\]\s]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(/[0-9]{0,5})?|unix:///[^@?\s]+)$",
        ),
    ]
    """Address; rediss:// uses TLS, unix:// is on this machine."""
    secret_ref: SecretRef | None = None
    """Secret with password and, optionally, username and ca.crt."""


class RedisSpec(APIModel):
    """The Redis beside each replay shard, which holds the log of chunks."""

    image: Annotated[Annotated[str, Text(512, "a container image")] | None, WHILE_SUSPENDED] = None
    """Image of the sidecar, with redis-server and redis-cli 7.0 or later. Unset: that of the shard."""
    resources: Annotated[Resources, WHILE_SUSPENDED] = Field(default_factory=Resources)
    """Resources of the sidecar. The log takes at most three quarters of a memory limit."""
    persistence: Annotated[Persistence, never("the log and its volume depend on it")] = Field(
        default_factory=Persistence
    )
    """What outlives the pod."""
    external: Annotated[ExternalRedis | None, WHILE_SUSPENDED] = None
    """Your own Redis, instead of sidecars."""


class ReplayParameters(APIModel):
    """`ReplaySpec` with quantities as numbers. Sizes are totals over all shards."""

    capacity: int
    """Transitions."""
    capacity_bytes: int
    """Bytes; 0 sets no limit."""
    exponent: float
    """Priority exponent."""
    importance: float
    """Importance exponent."""
    samples_per_insert: float
    """0: no limit."""
    min_size: int
    """Transitions before the first sample."""
    error_buffer: float
    """Samples."""
    shards: int
    """Replay services."""
    persistence: Literal["None", "Snapshot", "AppendOnly"]
    """How Redis keeps the log."""


class ReplaySpec(RoleSpec):
    """The store of experience between actors and learner."""

    shards: Annotated[int, Integer(1, 256), never("each shard owns its part of the stored experience")] = 1
    """Number of replay services, each with its share."""
    capacity: Annotated[int, Integer(1, 10**11), WHILE_SUSPENDED] = 2_000_000
    """Transitions over all shards; the oldest are overwritten."""
    capacity_bytes: Annotated[Quantity | None, WHILE_SUSPENDED] = None
    """Second limit, in bytes over all shards."""
    prioritization: Annotated[Prioritization, WHILE_SUSPENDED] = Field(default_factory=Prioritization)
    """Which transitions are drawn."""
    rate_limiter: Annotated[RateLimiter, never(_COUNTED)] = Field(default_factory=RateLimiter)
    """How often transitions are drawn."""
    redis: Annotated[RedisSpec, UNLEARNED] = Field(default_factory=RedisSpec)
    """The log that survives a crash."""

    def resolved(self) -> ReplayParameters:
        """The same, flat and with quantities as numbers."""
        limiter = self.rate_limiter
        return ReplayParameters(
            capacity=self.capacity,
            capacity_bytes=math.floor(quantity(self.capacity_bytes)) if self.capacity_bytes is not None else 0,
            exponent=self.prioritization.exponent,
            importance=self.prioritization.importance,
            samples_per_insert=limiter.samples_per_insert,
            min_size=limiter.min_size,
            error_buffer=limiter.error_buffer,
            shards=self.shards,
            persistence=self.redis.persistence.mode,
        )

"""``spec.fork`` and ``spec.schedule``: what changes in the course of a run, without a restart."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rljob.api.types import APIModel, Integer, JSONObject, Name, Text


class ForkSpec(APIModel):
    """One fork. It is done once: the next checkpoint names its id, so that no learner that starts again does it twice."""

    id: Name
    """Names the fork; another id asks for another one."""
    source: Annotated[
        str, Text(2048, 'a URI such as "file:///runs/pong-1"', r"^[a-z][a-z0-9+.-]*://.+$"), Field(alias="from")
    ]
    """Where the checkpoint is, as in checkpoint.restoreFrom: file:///path or s3://bucket/prefix, of a checkpoint or a run. On a
    cluster it has to be in a bucket, or on a volume that the learner mounts."""
    digest: Annotated[str, Text(71, "sha256: and 64 hexadecimal digits", r"^sha256:[0-9a-f]{64}$")]
    """Digest of its tensors, as in status.checkpoint.digest of the other run. No other checkpoint is taken."""


class ScheduledChange(APIModel):
    """One entry of a schedule."""

    after_raw_frames: Annotated[int, Integer(0)]
    """Raw frames of all actors after which it counts. Where several do, the one that stands last wins."""
    set: Annotated[dict[str, Any], JSONObject()] = Field(min_length=1)
    """Path of each live field, such as algorithm.learningRate, and its value from then on."""

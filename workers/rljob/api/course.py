"""``spec.fork`` and ``spec.schedule``: what changes in the course of a run, without a restart."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rljob.api.types import APIModel, Integer, JSONObject, Name, Text


class ForkSpec(APIModel):
    """One fork. It is done once: the next checkpoint names its id, so that a restarted learner does not repeat it."""

    id: Name
    """Name of the fork; a new id asks for a new fork."""
    source: Annotated[
        str, Text(2048, 'a URI such as "file:///runs/pong-1"', r"^[a-z][a-z0-9+.-]*://.+$"), Field(alias="from")
    ]
    """URI of a checkpoint, or of a run (its newest one). On a cluster: a bucket, or a volume that the learner mounts."""
    digest: Annotated[str, Text(71, "sha256: and 64 hexadecimal digits", r"^sha256:[0-9a-f]{64}$")]
    """Digest of the checkpoint's tensors (status.checkpoint.digest of the other run). Another checkpoint is refused."""


class ScheduledChange(APIModel):
    """One entry of a schedule."""

    after_raw_frames: Annotated[int, Integer(0)]
    """Raw frames of all actors from which the change applies. The last entry that applies wins."""
    set: Annotated[dict[str, Any], JSONObject()] = Field(min_length=1)
    """Paths of live fields, such as algorithm.learningRate, and their new values."""

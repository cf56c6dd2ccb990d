"""The plainest chunks and unrolls that a layout allows, for tests that care for the way they go and not for what is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from rljob.experience import Chunk, ChunkLayout, Unroll, UnrollLayout

CHUNKS = ChunkLayout(length=10, frame_shape=(6, 6), frame_dtype=np.dtype(np.uint8), stack=4, n_step=3)
UNROLLS = UnrollLayout(length=3, frame_shape=(2, 2), frame_dtype=np.dtype(np.uint8), stack=2)


def make_chunk(
    actor: str, number: int, layout: ChunkLayout = CHUNKS, steps: int | None = None, **changes: Any
) -> Chunk:
    """The ``number``th of an actor: as many steps as the layout allows unless ``steps`` says fewer, inside one episode, zeros
    where zero is allowed and ones elsewhere; ``changes`` replace its fields."""
    steps = steps or layout.length
    at = np.arange(steps, dtype=np.uint16) + np.uint16(layout.stack - 1)
    values = {
        "frames": np.zeros((steps + layout.stack - 1 + layout.n_step, *layout.frame_shape), layout.frame_dtype),
        "observation_at": at,
        "bootstrap_at": at + np.uint16(layout.n_step),
        "action": np.zeros(steps, np.int32),
        "n_step_return": np.zeros(steps, np.float32),
        "discount": np.ones(steps, np.float32),
        "priority": np.ones(steps, np.float32),
        "flags": np.zeros(steps, np.uint8),
    }
    return Chunk(**{**_stamp(actor, number), **values, **changes})


def make_unroll(actor: str, number: int, layout: UnrollLayout = UNROLLS, **changes: Any) -> Unroll:
    """The ``number``th of an actor: inside one episode, zeros but for the versions; ``changes`` replace its fields."""
    steps = layout.length
    zeros = {name: np.zeros(steps, np.float32) for name in ("reward", "discount", "log_prob", "final_value")}
    values = {
        "frames": np.zeros((steps + layout.stack, *layout.frame_shape), layout.frame_dtype),
        "observation_at": np.arange(steps + 1, dtype=np.uint16) + np.uint16(layout.stack - 1),
        "action": np.zeros(steps, np.int32),
        "value": np.zeros(steps + 1, np.float32),
        "policy_versions": np.ones(steps, np.int64),
        "state": np.zeros((2, layout.memory), np.float32),
    }
    return Unroll(**{**_stamp(actor, number), **zeros, **values, **changes})


def _stamp(actor: str, number: int) -> dict[str, Any]:
    stamp = {"incarnation": "life", "environment": 0, "policy_version": 1, "epoch": 1}
    return {"actor": actor, "sequence": number, **stamp}

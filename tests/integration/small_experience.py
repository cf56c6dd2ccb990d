"""The smallest chunk and unroll that services accept, for tests that care for what is said and not for what is in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from rljob.experience import Chunk, Unroll


def chunk(actor: str, number: int) -> Chunk:
    """The ``number``th of an actor: ten transitions of 6x6 frames, stacked by four, over three steps."""
    at = np.arange(10, dtype=np.uint16) + 3
    tens = {name: np.ones(10, np.float32) for name in ("n_step_return", "discount", "priority")}
    return Chunk(
        **_stamp(actor, number),
        frames=np.zeros((16, 6, 6), np.uint8),
        observation_at=at,
        bootstrap_at=(at + 3).astype(np.uint16),
        action=np.zeros(10, np.int32),
        flags=np.zeros(10, np.uint8),
        **tens,
    )


def unroll(actor: str, number: int) -> Unroll:
    """The ``number``th of an actor: three steps of 2x2 frames, stacked by two."""
    threes = {name: np.zeros(3, np.float32) for name in ("reward", "discount", "log_prob", "final_value")}
    return Unroll(
        **_stamp(actor, number),
        frames=np.zeros((5, 2, 2), np.uint8),
        observation_at=np.arange(1, 5, dtype=np.uint16),
        action=np.zeros(3, np.int32),
        value=np.zeros(4, np.float32),
        policy_versions=np.ones(3, np.int64),
        state=np.zeros((2, 0), np.float32),
        **threes,
    )


def _stamp(actor: str, number: int) -> dict[str, Any]:
    return {
        "actor": actor,
        "incarnation": "life",
        "environment": 0,
        "policy_version": 1,
        "epoch": 1,
        "sequence": number,
    }

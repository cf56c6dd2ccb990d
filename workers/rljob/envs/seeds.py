"""Seeds that are the same in the next run with the same ``seed``, and differ between its processes."""

import hashlib
import random
import sys

import numpy as np


def seed_of(*whose: int | str) -> int:
    """A seed in [0, 2^31) that follows from ``whose``, the job's seed first, and is another one for all others."""
    digest = hashlib.sha256(":".join(map(str, whose)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def seed_generators(seed: int) -> None:
    """Seed this process's generators, which many environments use instead of their own: those of Python, NumPy and, where it is
    loaded, torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # callers of reset may give it a longer one
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)

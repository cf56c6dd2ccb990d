"""Memory that an update frees stays for the next one."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

# In a process of its own, whose allocator nothing else has touched: every turn wants 96 MiB in four pieces.
_FAULTS = """
import resource, sys
import numpy as np
from rljob.learner.allocator import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
for turn in range(6):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pieces = [np.full(3 << 20, 1.0) for _ in range(4)]
    del pieces
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_freed_memory_is_not_fetched_again() -> None:
    def faults(how: str) -> int:
        return int(
            subprocess.run([sys.executable, "-c", _FAULTS, how], check=True, capture_output=True, text=True).stdout
        )

    assert faults("kept") < 20 < faults("default")

"""A server program that ends when the process that started it does, however that ends."""

import os
import sys
from collections.abc import Sequence
from os import PathLike

# Runs between fork and the program. A child of its own does this because Python code between fork and exec is unsafe beside
# threads.
_EXEC_TIED_TO_PARENT = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() != parent:
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def with_parent_death_signal(command: Sequence[str | PathLike[str]]) -> list[str | PathLike[str]]:
    """``command``, to be started by this process: it gets SIGTERM when the thread that started it ends, even by SIGKILL."""
    return [sys.executable, "-I", "-S", "-c", _EXEC_TIED_TO_PARENT, str(os.getpid()), *command]

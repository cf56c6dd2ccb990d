"""Which process goes first where a machine has fewer cores than the run has busy processes."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from typing import Final

from rljob_operator.core.member import Role

_NICENESS: Final = {Role.LEARNER: 4, Role.ACTOR: 6}
"""Added to the controller's own. The process that is waited for goes first: a verdict may end the run, and a learner that has
data is not to be held up by actors that make more. Not by so much that an actor could not start, or send its last steps and
leave, in time: where all three want the same cores, the evaluator has 60 %, the learner 25 and the actors 16. On a cluster each
pod has cores of its own."""

_LOWEST: Final = 19
_TRIES: Final = 10
_BUSY_SECONDS: Final = 0.12
"""The kernel lets those without privileges change the priority of one session in a tenth of a second."""


def niceness(role: Role) -> int:
    """The niceness of ``role``, counted from this process's own."""
    return min(_LOWEST, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS.get(role, 0))


def set_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of a process that leads a session of its own, and of that session.

    Linux shares the processor between sessions first (``CONFIG_SCHED_AUTOGROUP``), each a group with a niceness of its own that
    begins at 0, and only then between the processes of one: niceness alone would change nothing between roles. Where the
    kernel groups otherwise there is no such file, and where a process has ended nothing is left to do.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
    for _ in range(_TRIES):
        try:
            Path(f"/proc/{pid}/autogroup").write_text(str(niceness))
        except OSError as error:
            if error.errno != errno.EAGAIN:
                return
            time.sleep(_BUSY_SECONDS)
        else:
            return

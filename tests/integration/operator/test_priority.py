"""Who goes first on a machine with too few cores: measured with processes that want the same one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from rljob_operator.core.member import Role
from rljob_operator.local.priority import niceness, set_niceness

from tests.support.launch import execute
from tests.support.waiting import eventually

CORE_SECONDS = 1.5
"""What the first of both must have had of the core before they are compared, however long that takes."""


def test_whoever_is_waited_for_goes_first() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert niceness(Role.EVALUATOR) == niceness(Role.REPLAY) == own
    assert niceness(Role.ACTOR) >= niceness(Role.LEARNER) >= own
    if own == 0:
        assert niceness(Role.ACTOR) > niceness(Role.LEARNER) > 0


def test_a_role_that_gives_way_leaves_a_core_to_one_that_does_not(tmp_path: Path) -> None:
    """Each role has a session of its own, between which the kernel shares the processor whatever their processes' niceness."""
    core = min(os.sched_getaffinity(0))
    busy = [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with (tmp_path / "log").open("ab") as log:
        roles = [execute(busy, os.environ, {}, log.fileno(), min(19, own + more)) for more in (0, 15)]
    try:
        processes = [psutil.Process(role.pid) for role in roles]
        eventually(lambda: all(p.cpu_affinity() == [core] for p in processes), "both are about to loop", 90)
        deadline = time.monotonic() + 90
        before = [sum(process.cpu_times()[:2]) for process in processes]
        first = second = 0.0
        while first < CORE_SECONDS:
            assert time.monotonic() < deadline, f"{first:.2f} s of the core, and {second:.2f} for the other"
            time.sleep(0.1)
            first, second = (sum(p.cpu_times()[:2]) - b for p, b in zip(processes, before, strict=True))
    finally:
        for role in roles:
            os.kill(role.pid, 9)
            role.wait()
    assert second < 0.25 * first, f"{second:.2f} s of the core against {first:.2f}"


def test_a_process_that_has_ended_is_left_alone() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    set_niceness(process.pid, 5)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel does not group processes by session")
def test_its_session_has_the_same_niceness(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as log:
        role = execute([sys.executable, "-c", "import time; time.sleep(60)"], os.environ, {}, log.fileno(), 11)
    try:
        assert Path(f"/proc/{role.pid}/autogroup").read_text().split()[-1] == "11"
        assert os.getpriority(os.PRIO_PROCESS, role.pid) == 11
    finally:
        os.kill(role.pid, 9)
        role.wait()

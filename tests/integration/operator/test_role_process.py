"""RoleProcess with real child processes: start, readiness, unasked ends, drains and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rljob_operator.local.process import RoleProcess
from rljob_operator.model import Member, Phase, Role

READY = 'import pathlib, sys, time; pathlib.Path({announce!r}).write_text(\'{{"metrics_url": "http://x"}}\'); '


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], RoleProcess]]:
    started: list[RoleProcess] = []

    def begin(code: str) -> RoleProcess:
        announce = tmp_path / "announce.json"
        command = [sys.executable, "-c", READY.format(announce=str(announce)) + code]
        process = RoleProcess("actor-0", Role.ACTOR, command, log=tmp_path / "log", announce=announce)
        process.start()
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()


def until(process: RoleProcess, phase: Phase, seconds: float = 10.0) -> Member:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        member = process.observe()
        if member.phase is phase:
            return member
        time.sleep(0.02)
    raise AssertionError(f"{process.observe()} did not become {phase}")


def test_it_is_ready_once_it_has_announced_itself(start: Callable[[str], RoleProcess]) -> None:
    process = start("time.sleep(60)")
    until(process, Phase.READY)
    assert process.metrics_url() == "http://x"
    pid = process.pid
    process.start()
    assert process.pid == pid, "starting twice changes nothing"


def test_an_unasked_end_is_counted_with_its_last_words(start: Callable[[str], RoleProcess]) -> None:
    process = start("print('first'); sys.exit('no ROM named Pnog')")
    member = until(process, Phase.EXITED)
    assert (member.exits, member.quick_exits, member.exit_code) == (1, 1, 1)
    assert member.last_words == "no ROM named Pnog"
    process.start()
    assert until(process, Phase.EXITED).exits == 2


def test_a_killed_process_names_the_signal(start: Callable[[str], RoleProcess]) -> None:
    process = start("time.sleep(60)")
    until(process, Phase.READY)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    assert until(process, Phase.EXITED).last_words == "killed by SIGKILL"


def test_a_drain_is_not_a_failure(start: Callable[[str], RoleProcess]) -> None:
    process = start("time.sleep(60)")
    until(process, Phase.READY)
    process.drain(5.0)
    member = until(process, Phase.EXITED)
    assert member.exits == 0


def test_what_does_not_leave_is_made_to(start: Callable[[str], RoleProcess]) -> None:
    process = start(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    until(process, Phase.READY)
    time.sleep(0.3)
    process.drain(0.3)
    assert until(process, Phase.DRAINING).exits == 0
    assert until(process, Phase.EXITED).exit_code == -signal.SIGKILL


def test_children_do_not_outlive_the_controller(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"""
import sys, time, pathlib
from rljob_operator.local.process import RoleProcess
from rljob_operator.model import Role
process = RoleProcess("a", Role.ACTOR, [sys.executable, "-c", "import time; time.sleep(60)"],
                      log=pathlib.Path({str(tmp_path / "log")!r}), announce=pathlib.Path({str(tmp_path / "announce")!r}))
process.start()
pathlib.Path({str(pid_file)!r}).write_text(str(process.pid))
time.sleep(60)
"""
    controller = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 20
    while not pid_file.exists() or not pid_file.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child = int(pid_file.read_text())
    controller.kill()
    controller.wait()
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()

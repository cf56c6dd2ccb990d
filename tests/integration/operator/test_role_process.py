"""RoleProcess with real child processes: start, readiness, unasked ends, drains and kills."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.local.priority import niceness
from rljob_operator.local.process import ProcessIdentity, RoleProcess, announce_path

from tests.support.launch import execute
from tests.support.waiting import eventually

READY = (
    "import json, os, pathlib, sys, time; "
    'pathlib.Path(sys.argv[1]).write_text(json.dumps({"pid": os.getpid(), "metrics_url": "http://x"})); '
)


def command(run_dir: Path, code: str) -> list[str]:
    (run_dir / "roles").mkdir(exist_ok=True)
    (run_dir / "logs").mkdir(exist_ok=True)
    return [sys.executable, "-c", READY + code, str(announce_path(run_dir, "actor-0"))]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], RoleProcess]]:
    started: list[RoleProcess] = []

    def begin(code: str) -> RoleProcess:
        process = RoleProcess("actor-0", Role.ACTOR, command(tmp_path, code), tmp_path, execute)
        process.start()
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()


def reaches(process: RoleProcess, phase: Phase) -> Member:
    def there() -> Member | None:
        member = process.observe()
        return member if member.phase is phase else None

    return eventually(there, lambda: f"{process.observe()} did not become {phase}")


def test_an_actor_leaves_the_cores_to_those_who_are_waited_for(start: Callable[[str], RoleProcess]) -> None:
    process = start("time.sleep(60)")
    assert process.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == niceness(Role.ACTOR)


def test_it_is_ready_once_it_has_announced_itself(start: Callable[[str], RoleProcess]) -> None:
    process = start("time.sleep(60)")
    reaches(process, Phase.READY)
    assert process.metrics_url() == "http://x"
    pid = process.pid
    process.start()
    assert process.pid == pid, "starting twice changes nothing"


@pytest.mark.parametrize("how", ["kill -9", "leaves"])
def test_no_simulator_outlives_its_actor(how: str, start: Callable[[str], RoleProcess], tmp_path: Path) -> None:
    begin = "import subprocess; p = subprocess.Popen(['sleep', '600']); pathlib.Path('{}').write_text(str(p.pid)); "
    process = start(begin.format(tmp_path / "simulator") + ("time.sleep(60)" if how == "kill -9" else ""))
    simulator = ProcessIdentity.of(
        int(eventually(lambda: (tmp_path / "simulator").exists() and (tmp_path / "simulator").read_text()))
    )
    assert simulator is not None
    if how == "kill -9":
        os.kill(process.pid or 0, signal.SIGKILL)
    reaches(process, Phase.EXITED)
    eventually(lambda: not simulator.alive)


def test_how_long_it_has_been_starting_is_told_until_it_announces_itself(tmp_path: Path) -> None:
    command(tmp_path, "")
    wait = f"import pathlib, sys, time\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)\n"
    words = [sys.executable, "-c", f"{wait}{READY}time.sleep(60)", str(announce_path(tmp_path, "actor-0"))]
    process = RoleProcess("actor-0", Role.ACTOR, words, tmp_path, execute)
    process.start()
    try:
        assert process.observe().silent_seconds < 5.0
        time.sleep(0.2)
        member = process.observe()
        assert (member.phase, member.silent_because) == (Phase.STARTING, "is still starting")
        assert member.silent_seconds >= 0.2
        (tmp_path / "go").touch()
        assert reaches(process, Phase.READY).silent_seconds == 0.0
    finally:
        process.kill()


def test_an_unasked_end_is_counted_with_its_last_words(start: Callable[[str], RoleProcess]) -> None:
    process = start("print('first'); sys.exit('no ROM named Pnog')")
    member = reaches(process, Phase.EXITED)
    assert (member.failed, member.exit_code) == (True, 1)
    assert member.last_words == "no ROM named Pnog"
    process.start()
    assert reaches(process, Phase.EXITED).incarnation != member.incarnation, "each life can be told from the next"


def test_a_killed_process_names_the_signal(start: Callable[[str], RoleProcess]) -> None:
    process = start("time.sleep(60)")
    reaches(process, Phase.READY)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    assert reaches(process, Phase.EXITED).last_words == "killed by SIGKILL"


def test_a_drain_is_not_a_failure(start: Callable[[str], RoleProcess]) -> None:
    process = start("time.sleep(60)")
    reaches(process, Phase.READY)
    process.drain(5.0)
    member = reaches(process, Phase.EXITED)
    assert member.asked
    assert not member.failed


def test_what_does_not_leave_is_made_to(start: Callable[[str], RoleProcess]) -> None:
    process = start(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    reaches(process, Phase.READY)
    time.sleep(0.3)
    process.drain(0.3)
    reaches(process, Phase.DRAINING)
    assert reaches(process, Phase.EXITED).exit_code == -signal.SIGKILL


def test_what_can_not_be_started_has_ended_and_says_why(tmp_path: Path) -> None:
    command(tmp_path, "")
    process = RoleProcess("actor-0", Role.ACTOR, [str(tmp_path / "no-python")], tmp_path, execute)
    process.start()
    member = process.observe()
    assert (member.failed, member.exit_code) == (True, 127)
    assert "No such file" in member.last_words


def test_a_pid_that_was_used_again_is_another_process(tmp_path: Path) -> None:
    mine = ProcessIdentity.of(os.getpid())
    assert mine is not None
    assert mine.alive
    earlier = ProcessIdentity(mine.pid, mine.start_ticks - 1)
    assert not earlier.alive
    earlier.send(signal.SIGKILL)  # goes nowhere, or this test would end here

"""RoleProcess with real child processes: start, readiness, unasked ends, drains, kills, and adoption by the next controller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.local.liveness import ProcessIdentity, find_by_output
from rljob_operator.local.priority import niceness
from rljob_operator.local.process import RoleProcess, announce_path, forget_processes

from tests.support.waiting import eventually

READY = (
    "import json, os, pathlib, sys, time; "
    'pathlib.Path(sys.argv[1]).write_text(json.dumps({"pid": os.getpid(), "metrics_url": "http://x"})); '
)
RECORDED_EXIT = (
    'from rljob.roles.announce import recording_exit\nwith recording_exit(pathlib.Path({run!r}), "actor-0"): '
)


def command(run_dir: Path, code: str) -> list[str]:
    (run_dir / "roles").mkdir(exist_ok=True)
    (run_dir / "logs").mkdir(exist_ok=True)
    return [sys.executable, "-c", READY + code, str(announce_path(run_dir, "actor-0"))]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], RoleProcess]]:
    started: list[RoleProcess] = []

    def begin(code: str) -> RoleProcess:
        process = RoleProcess("actor-0", Role.ACTOR, command(tmp_path, code), tmp_path)
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
    process = RoleProcess("actor-0", Role.ACTOR, words, tmp_path)
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


def orphan(run_dir: Path, code: str) -> int:
    """Start the role from a controller that is killed at once; answers the role's pid."""
    pid_file = run_dir / "pid"
    script = f"""
import sys, time, pathlib
from rljob_operator.local.process import RoleProcess
from rljob_operator.core.observed import Role
process = RoleProcess("actor-0", Role.ACTOR, {command(run_dir, code)!r}, pathlib.Path({str(run_dir)!r}))
process.start()
pathlib.Path({str(pid_file)!r}).write_text(str(process.pid))
time.sleep(60)
"""
    controller = subprocess.Popen([sys.executable, "-c", script])
    eventually(lambda: pid_file.exists() and pid_file.read_text())
    controller.kill()
    controller.wait()
    return int(pid_file.read_text())


def adopted(run_dir: Path) -> RoleProcess:
    found = RoleProcess("actor-0", Role.ACTOR, command(run_dir, "time.sleep(60)"), run_dir)
    found.adopt()
    return found


def test_the_next_controller_adopts_what_still_runs(tmp_path: Path) -> None:
    pid = orphan(tmp_path, "time.sleep(60)")
    process = adopted(tmp_path)
    assert process.pid == pid
    reaches(process, Phase.READY)
    process.start()
    assert process.pid == pid, "it is not started a second time"
    process.drain(5.0)
    assert reaches(process, Phase.EXITED).asked


@pytest.mark.parametrize(
    ("end", "exit_code", "words"),
    [
        ("sys.exit(78)", 78, "exit code 78"),
        ("print('all done', flush=True)", 0, "all done"),
        ("os.kill(os.getpid(), 9)", None, "kill -9"),
    ],
)
def test_how_an_adopted_process_ended_is_known_from_what_it_wrote(
    tmp_path: Path, end: str, exit_code: int | None, words: str
) -> None:
    code = RECORDED_EXIT.format(run=str(tmp_path)) + f"time.sleep(1); {end}"
    orphan(tmp_path, code)
    member = reaches(adopted(tmp_path), Phase.EXITED)
    assert (member.failed, member.exit_code) == (True, exit_code)
    assert words in member.last_words


def test_it_may_have_ended_while_no_controller_was_there(tmp_path: Path) -> None:
    pid = orphan(tmp_path, RECORDED_EXIT.format(run=str(tmp_path)) + "sys.exit(3)")
    eventually(lambda: ProcessIdentity.of(pid) is None)
    member = adopted(tmp_path).observe()
    assert (member.phase, member.failed, member.exit_code) == (Phase.EXITED, True, 3)
    assert adopted(tmp_path).observe() == member, "it is the same end, however many controllers look"


def test_a_process_that_nobody_wrote_down_is_found_by_its_log(tmp_path: Path) -> None:
    pid = orphan(tmp_path, "time.sleep(60)")
    (tmp_path / "roles" / "actor-0.process.json").unlink()
    process = adopted(tmp_path)
    assert process.pid == pid
    process.kill()
    assert find_by_output(tmp_path / "logs" / "actor-0.log") is None


def test_what_can_not_be_started_has_ended_and_says_why(tmp_path: Path) -> None:
    command(tmp_path, "")
    process = RoleProcess("actor-0", Role.ACTOR, [str(tmp_path / "no-python")], tmp_path)
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


def test_what_ended_in_a_run_before_is_no_end_of_the_one_that_begins_in_its_folder(
    start: Callable[[str], RoleProcess], tmp_path: Path
) -> None:
    process = start("sys.exit(70)")
    assert reaches(process, Phase.EXITED).exit_code == 70
    forget_processes(tmp_path)
    again = RoleProcess("actor-0", Role.ACTOR, command(tmp_path, "time.sleep(60)"), tmp_path)
    again.adopt()
    assert again.observe().phase is Phase.ABSENT


def test_one_that_runs_is_found_although_it_was_forgotten(start: Callable[[str], RoleProcess], tmp_path: Path) -> None:
    process = start("time.sleep(60)")
    reaches(process, Phase.READY)
    forget_processes(tmp_path)
    again = RoleProcess("actor-0", Role.ACTOR, command(tmp_path, "time.sleep(60)"), tmp_path)
    again.adopt()
    assert again.pid == process.pid

"""RoleProcess with real child processes: start, readiness, ends, drains and kills, and who goes first on too few cores."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.local.process import RoleProcess, announce_path, niceness, set_niceness
from rljob_operator.local.run_folder import ProcessIdentity

from tests.support.launch import execute
from tests.support.waiting import eventually, known

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


def test_lives_that_begin_in_the_same_moment_are_told_apart(tmp_path: Path) -> None:
    """While libraries are loaded, all members of a run begin at once; whoever asks them knows them by their lives."""
    (tmp_path / "logs").mkdir()
    members = [
        RoleProcess(name, Role.of(name), [], tmp_path, lambda *how: None, lambda: 1e9)
        for name in ("actor-0", "learner")
    ]
    for member in members:
        member.start()
    assert len({member.observe().incarnation for member in members}) == len(members)


def reaches(process: RoleProcess, phase: Phase) -> Member:
    def there() -> Member | None:
        member = process.observe()
        return member if member.phase is phase else None

    return eventually(there, lambda: f"{process.observe()} did not become {phase}")


def test_it_is_ready_once_it_has_announced_itself(start: Callable[[str], RoleProcess]) -> None:
    """An actor leaves the cores to those who are waited for."""
    process = start("time.sleep(60)")
    reaches(process, Phase.READY)
    pid = known(process.pid)
    assert (process.metrics_url(), os.getpriority(os.PRIO_PROCESS, pid)) == ("http://x", niceness(Role.ACTOR))
    process.start()
    assert process.pid == pid, "starting twice changes nothing"


@pytest.mark.parametrize("how", ["kill -9", "leaves"])
def test_no_simulator_outlives_its_actor(how: str, start: Callable[[str], RoleProcess], tmp_path: Path) -> None:
    begin = "import subprocess; p = subprocess.Popen(['sleep', '600']); pathlib.Path('{}').write_text(str(p.pid)); "
    process = start(begin.format(tmp_path / "simulator") + ("time.sleep(60)" if how == "kill -9" else ""))
    simulator = known(
        ProcessIdentity.of(
            int(eventually(lambda: (tmp_path / "simulator").exists() and (tmp_path / "simulator").read_text()))
        )
    )
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


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("print('first'); sys.exit('no ROM named Pnog')", 1, "no ROM named Pnog"),
        ("os.kill(os.getpid(), 9)", -9, "killed by SIGKILL"),
    ],
)
def test_an_unasked_end_is_counted_with_its_last_words(
    start: Callable[[str], RoleProcess], end: str, code: int, words: str
) -> None:
    process = start(end)
    member = reaches(process, Phase.EXITED)
    assert (member.failed, member.exit_code, member.last_words) == (True, code, words)
    process.start()
    assert reaches(process, Phase.EXITED).incarnation != member.incarnation, "each life can be told from the next"


def test_a_drain_is_not_a_failure(start: Callable[[str], RoleProcess]) -> None:
    process = start("time.sleep(60)")
    reaches(process, Phase.READY)
    process.drain(5.0)
    member = reaches(process, Phase.EXITED)
    assert (member.asked, member.failed) == (True, False)


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


def test_options_of_roles_that_lie_in_the_shell_reach_none(
    start: Callable[[str], RoleProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a pod of a job, where `rljob run` may be tried, too."""
    for name in ("PROTOCOL", "METRICS_PORT", "KEYS", "REDIS_KEYS", "REDIS_PASSWORD"):
        monkeypatch.setenv(f"RLJOB_{name}", "x")
    told = "[name for name in os.environ if name.startswith('RLJOB_')]"
    reaches(start(f"print({told}, flush=True); time.sleep(60)"), Phase.READY)
    log = tmp_path / "logs" / "actor-0.log"
    assert eventually(log.read_text) == "['RLJOB_REDIS_PASSWORD']\n"


def test_a_pid_that_was_used_again_is_another_process(tmp_path: Path) -> None:
    mine = known(ProcessIdentity.of(os.getpid()))
    assert mine.alive
    earlier = ProcessIdentity(mine.pid, mine.start_ticks - 1)
    assert not earlier.alive
    earlier.send(signal.SIGKILL)  # goes nowhere, or this test would end here


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

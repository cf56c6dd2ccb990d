"""Roles as forks of a process that has loaded everything: they are what a process of their own would be, only sooner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from rljob_operator.local.launch import PROGRAM, Launched, Launcher
from rljob_operator.local.liveness import ProcessIdentity, find_by_output

from tests.support.paths import EXAMPLES
from tests.support.waiting import eventually

EXAMPLE = EXAMPLES / "cartpole-apex.yaml"
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture
def start(launcher: Launcher, tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    """Launches ``rljob WORDS`` with tmp_path/log as its log."""
    started: list[ProcessIdentity] = []

    def begin(*words: str, environment: dict[str, str] | None = None) -> Launched:
        with (tmp_path / "log").open("ab") as log:
            launched = launcher.launch([*PROGRAM, *words], {**os.environ, **(environment or {})}, log.fileno(), 7)
        started.append(ProcessIdentity.of(launched.pid) or ProcessIdentity(launched.pid, 0))
        return launched

    yield begin
    for identity in started:
        identity.send(signal.SIGKILL)


def server_pid(launcher: Launcher) -> int:
    """Process id of the fork server."""
    assert launcher._server is not None
    return launcher._server._process.pid


def evaluator(folder: Path) -> list[str]:
    """The words of a role that is soon ready and then waits for weights which never come."""
    nobody = f"ipc://{folder}/nobody"
    files = ["--job", str(EXAMPLE), "--run-dir", str(folder), "--announce", str(folder / "announced.json")]
    return ["evaluator", "--name", "evaluator", *files, "--weights", nobody, "--notice", nobody]


def test_it_is_forked_from_one_thread_and_ends_as_it_ends(
    launcher: Launcher, start: Callable[..., Launched], tmp_path: Path
) -> None:
    launched = start("--help")
    assert psutil.Process(launched.pid).ppid() == server_pid(launcher)
    assert launched.wait() == 0
    assert "Run one role of a job" in (tmp_path / "log").read_text()
    assert psutil.Process(server_pid(launcher)).num_threads() == 1
    for words in (["no-such-role"], ["actor"]):
        assert start(*words).wait() == 78, "as the same command line on its own"


def test_it_has_a_session_an_environment_and_a_name_of_its_own(
    launcher: Launcher, start: Callable[..., Launched], tmp_path: Path
) -> None:
    # Options of a role can come from its environment, so this one is configured by nothing else.
    words = evaluator(tmp_path)
    launched = start(*words[:-2], environment={"RLJOB_NOTICE": words[-1]})
    eventually((tmp_path / "announced.json").exists, (tmp_path / "log").read_text())
    process = psutil.Process(launched.pid)
    assert os.getsid(launched.pid) == launched.pid
    assert process.name() == "evaluator", "what `ps -e` and `top` show"
    assert process.cmdline()[0].startswith("rljob cartpole-apex: evaluator"), "what `ps aux` and `top -c` show"
    assert process.nice() == 7
    assert {file.path for file in process.open_files()} >= {str(tmp_path / "log")}
    assert find_by_output(tmp_path / "log") == ProcessIdentity.of(launched.pid)
    process.terminate()
    assert launched.wait() == 143, "SIGTERM drains it"
    assert "SIGTERM: draining" in (tmp_path / "log").read_text()
    assert find_by_output(tmp_path / "log") is None


def test_a_killed_server_takes_no_role_with_it_and_the_next_role_starts_without_it(
    launcher: Launcher, start: Callable[..., Launched], tmp_path: Path
) -> None:
    launched = start(*evaluator(tmp_path))
    eventually((tmp_path / "announced.json").exists, (tmp_path / "log").read_text())
    killed = server_pid(launcher)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: ProcessIdentity.of(killed) is None, "the server is gone")
    other = start("--help")
    assert psutil.Process(other.pid).ppid() == os.getpid(), "executed"
    assert other.wait() == 0
    running = ProcessIdentity.of(launched.pid)
    assert running is not None
    os.kill(launched.pid, signal.SIGTERM)
    eventually(lambda: not running.alive, "it drains as before")
    assert launched.wait() is None, "its parent is gone, so nobody was told"
    third = start("--help")
    assert server_pid(launcher) != killed
    assert psutil.Process(third.pid).ppid() == server_pid(launcher)


def test_the_server_ends_with_its_controller_and_its_forks_do_not(tmp_path: Path) -> None:
    script = f"""
import os, sys, time
from rljob_operator.local.launch import PROGRAM, Launcher
launcher = Launcher()
with open({str(tmp_path / "log")!r}, "ab") as log:
    role = launcher.launch([*PROGRAM, *{evaluator(tmp_path)!r}], os.environ, log.fileno(), 0)
print(launcher._server._process.pid, role.pid, flush=True)
time.sleep(60)
"""
    controller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert controller.stdout is not None
    server, role = (ProcessIdentity.of(int(pid)) for pid in controller.stdout.readline().split())
    controller.kill()
    controller.communicate()
    assert server is not None
    assert role is not None
    eventually(lambda: not server.alive, "the server is gone")
    eventually((tmp_path / "announced.json").exists, "the role goes on")
    assert role.alive
    role.send(signal.SIGTERM)
    eventually(lambda: not role.alive, "it drains as before")

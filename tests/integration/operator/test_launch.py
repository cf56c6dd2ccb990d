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
from rljob_operator.local.process import ProcessIdentity

from tests.support.known import known
from tests.support.paths import EXAMPLES
from tests.support.waiting import eventually

EXAMPLE = EXAMPLES / "cartpole-apex.yaml"


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture
def start(launcher: Launcher, tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    """Launches ``rljob WORDS`` with tmp_path/log as its log."""
    started: list[ProcessIdentity] = []

    def begin(
        *words: str, environment: dict[str, str] | None = None, variables: dict[str, str] | None = None
    ) -> Launched:
        with (tmp_path / "log").open("ab") as log:
            launched = launcher.launch(
                [*PROGRAM, *words], {**os.environ, **(environment or {})}, variables or {}, log.fileno(), 7
            )
        started.append(ProcessIdentity.of(launched.pid) or ProcessIdentity(launched.pid, 0))
        return launched

    yield begin
    for identity in started:
        identity.send(signal.SIGKILL)


def server_pid(launcher: Launcher) -> int:
    """Process id of the fork server."""
    return launcher._server._process.pid


def evaluator(folder: Path) -> list[str]:
    """The words of a role that is soon ready and then waits for weights which never come."""
    nowhere = f"ipc://{folder}/nowhere"
    files = ["--job", str(EXAMPLE), "--run-dir", str(folder), "--announce", str(folder / "announced.json")]
    return ["evaluator", "--name", "evaluator", *files, "--weights", nowhere, "--notice", nowhere]


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
    process.terminate()
    assert launched.wait() == 143, "SIGTERM drains it"
    assert "SIGTERM: draining" in (tmp_path / "log").read_text()


def test_one_with_variables_of_its_own_loads_everything_anew(
    launcher: Launcher, start: Callable[..., Launched], tmp_path: Path
) -> None:
    words = evaluator(tmp_path)
    launched = start(*words[:-2], variables={"RLJOB_NOTICE": words[-1]})
    eventually((tmp_path / "announced.json").exists, (tmp_path / "log").read_text())
    process = psutil.Process(launched.pid)
    assert process.ppid() == server_pid(launcher)
    shared = psutil.Process(server_pid(launcher)).memory_maps(grouped=False)[0].addr
    assert shared != process.memory_maps(grouped=False)[0].addr, "no fork, which has the addresses of its parent"
    assert (os.getsid(launched.pid), process.nice()) == (launched.pid, 7)
    process.terminate()
    assert launched.wait() == 143


def test_a_killed_server_takes_no_role_with_it_and_another_starts_the_next(
    launcher: Launcher, start: Callable[..., Launched], tmp_path: Path
) -> None:
    launched = start(*evaluator(tmp_path))
    eventually((tmp_path / "announced.json").exists, (tmp_path / "log").read_text())
    killed = server_pid(launcher)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: ProcessIdentity.of(killed) is None, "the server is gone")
    other = start("--help")
    assert server_pid(launcher) != killed
    assert psutil.Process(other.pid).ppid() == server_pid(launcher)
    assert other.wait() == 0
    running = known(ProcessIdentity.of(launched.pid))
    os.kill(launched.pid, signal.SIGTERM)
    eventually(lambda: not running.alive, "it drains as before")
    assert launched.wait() is None, "its parent is gone, so no process was told"


def test_a_role_that_stays_is_ended(tmp_path: Path) -> None:
    script = """
import contextlib, json, os, socket, sys, time
from rljob_operator.local import fork_server
fork_server.LEAVE_SECONDS = 1.0
fork_server._LOADED = ()
mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if os.fork() == 0:
    mine.close()
    fork_server._become = lambda asked, log: (os.setsid(), __import__("signal").signal(15, __import__("signal").SIG_IGN))
    roles, role = {}, None
    with contextlib.suppress(ConnectionError):
        role = fork_server._serve(its, roles)
    sys.exit(time.sleep(60) if role else fork_server._end(roles))
its.close()
socket.send_fds(mine, [json.dumps({"words": ["actor"], "variables": {}}).encode()], [1])
print(json.loads(mine.recv(1000))["pid"], flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    role = ProcessIdentity.of(int(ended.stdout))
    eventually(lambda: role is None or not role.alive, "it was killed", 20)

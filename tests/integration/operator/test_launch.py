"""Roles as forks of a process that has loaded everything: they are what a process of their own would be, only sooner."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from rljob_operator.local.launch import Launched, Launcher
from rljob_operator.local.run_folder import ProcessIdentity

from tests.support.paths import EXAMPLES
from tests.support.waiting import eventually, known

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
        launched = None
        with (tmp_path / "log").open("ab") as log:
            while launched is None:
                launched = launcher.launch(
                    words, {**os.environ, **(environment or {})}, variables or {}, log.fileno(), 7
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
    eventually(lambda: process.status() == psutil.STATUS_ZOMBIE, "it has ended, and its parent is asked how")
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
import os, signal, sys, time
from multiprocessing import Pipe
from multiprocessing.reduction import send_handle
from rljob.roles import __main__
from rljob_operator.local import fork_server
fork_server.LEAVE_SECONDS = 1.0
fork_server._LOADED = ()
mine, its = Pipe()
if os.fork() == 0:
    mine.close()
    fork_server._become = lambda asked, log: (os.setsid(), signal.signal(15, signal.SIG_IGN))
    __main__.main = lambda words: time.sleep(60)
    sys.exit(fork_server.main(its))
its.close()
assert mine.recv()
mine.send({"words": ["actor"], "variables": {}})
send_handle(mine, 1, 0)
print(mine.recv()["pid"], flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    role = ProcessIdentity.of(int(ended.stdout))
    eventually(lambda: role is None or not role.alive, "it was killed", 20)


@pytest.mark.parametrize("broken", ["random", "rljob.roles.learner"])
def test_a_file_of_the_users_is_no_library_and_one_that_is_missing_is_named(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if broken == "random":
        (tmp_path / "random.py").write_text("raise ValueError('the game of dice')")
    else:
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        fails = f"class Broken:\n    def find_spec(self, name, *_):\n        assert name != {broken!r}, 'cut off'\n"
        (tmp_path / "sitecustomize.py").write_text(f"import sys\n{fails}sys.meta_path.insert(0, Broken())\n")
    launcher, launched = Launcher(), None
    expected = (
        pytest.raises(OSError, match="AssertionError: cut off") if broken != "random" else contextlib.nullcontext()
    )
    with (tmp_path / "log").open("ab") as log, contextlib.closing(launcher), expected:
        while launched is None:
            launched = launcher.launch(["--help"], os.environ, {}, log.fileno(), 0)
            time.sleep(0.05)
        assert launched.wait() == 0
    assert ("Traceback" in (tmp_path / "log").read_text()) == (broken != "random"), "in the role's log"

"""What a process takes, told of real sockets, children and files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from rljob.telemetry import process
from rljob.telemetry.process import ProcessUse, core_wait_seconds, cpu_seconds, thread_times

BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_bytes_that_wait_in_sockets_and_open_files_are_counted() -> None:
    before = ProcessUse().now()
    near, far = socket.socketpair()
    listener = socket.create_server(("127.0.0.1", 0))
    with near, far, listener, closing(socket.create_connection(listener.getsockname())):
        near.send(bytes(1000))
        now = ProcessUse().now()
    assert now["receive_queue_bytes"] - before["receive_queue_bytes"] == 1000
    assert now["send_queue_bytes"] - before["send_queue_bytes"] >= 1000, "the other side has not read it"
    assert now["open_files"] - before["open_files"] == 4
    assert now["rss_bytes"] > 1 << 20


def test_what_the_system_does_not_tell_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As /proc/self/fd is to a process that has given up its rights."""
    monkeypatch.setattr(process, "_PROC", tmp_path)
    assert set(ProcessUse().now()) == {"cpu_seconds", "cpu_cores", "rss_bytes", "shm_bytes"}


def test_children_that_end_while_they_are_looked_at_do_no_harm() -> None:
    ended = threading.Event()

    def begin() -> None:
        while not ended.is_set():
            subprocess.run(["true"], check=True)

    starter = threading.Thread(target=begin)
    starter.start()
    totals = [cpu_seconds() for _ in range(300)]
    ended.set()
    starter.join()
    assert max(totals) >= totals[0] > 0


def test_time_of_a_child_counts_while_it_lives_and_afterwards() -> None:
    before = cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        alive = cpu_seconds() - before
        child.stdin.close()
    assert alive > 0.25
    assert cpu_seconds() - before > 0.25


def test_time_in_which_a_core_was_wanted_and_not_had_is_counted() -> None:
    """Two that want one core for a third of a second each: together they wait at least as long as one of them works."""
    core = min(os.sched_getaffinity(0))
    before = thread_times()
    command = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\n{BUSY}"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
    ):
        for each in (one, other):
            assert each.stdout is not None
            each.stdout.readline()
        waited = core_wait_seconds(before, thread_times())
        for each in (one, other):
            each.communicate(b"\n")
    assert waited > 0.2
    assert thread_times(1 << 30) == {}, "of a process that is not there"


def test_threads_that_hardly_work_do_not_count() -> None:
    before = {"1": (10.0, 5.0), "2": (1.0, 50.0)}
    after = {"1": (11.0, 5.5), "2": (1.05, 60.0), "3": (0.3, 0.2)}
    assert core_wait_seconds(before, after) == pytest.approx(0.5 + 0.2)
    assert core_wait_seconds({}, {}) == 0.0


def test_a_forked_process_counts_from_its_own_start() -> None:
    """As a role does, whose parent has loaded torch: it has computed for seconds before."""
    code = f"""
import os, time
while time.process_time() < 0.5: pass
from rljob.telemetry.process import PROCESS
PROCESS.now()
if os.fork(): os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
while time.process_time() < 0.2: pass
PROCESS._taken = (PROCESS._taken[0] - {process.SAMPLED_EVERY_SECONDS}, *PROCESS._taken[1:])
now = PROCESS.now()
os._exit(not 0.15 < now["cpu_seconds"] < 0.45 or not now["cpu_cores"] > 0)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_sample_is_kept_for_a_while_and_cores_are_those_between_two() -> None:
    use = ProcessUse()
    first = use.now()
    spent = os.times().user
    while os.times().user - spent < 0.2:
        pass
    assert use.now() is first
    use._taken = (use._taken[0] - process.SAMPLED_EVERY_SECONDS, *use._taken[1:])
    second = use.now()
    assert second["cpu_seconds"] - first["cpu_seconds"] > 0.15
    assert 0.0 < second["cpu_cores"] <= 64.0

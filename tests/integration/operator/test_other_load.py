"""Other programs on a run's cores, with real ones."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest
from rljob.cores import usable_cores
from rljob_operator.local import other_load
from rljob_operator.local.other_load import OtherLoad, taken_by_others

from tests.support.waiting import eventually

BUSY = "import time; end = time.monotonic() + 20\nwhile time.monotonic() < end: pass"


@pytest.mark.parametrize(
    ("busy", "own", "said"),
    [(2.0, 1.0, "take 1.0 of this machine's 2 cores"), (1.6, 0.6, ""), (2.0, 1.8, ""), (2.0, 2.1, "")],
)
def test_what_is_much(busy: float, own: float, said: str) -> None:
    assert said in taken_by_others(2, busy, own)
    assert bool(said) == bool(taken_by_others(2, busy, own))


def test_what_runs_below_this_process_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [0.0]
    monkeypatch.setattr(other_load, "taken_by_others", lambda cores, busy, own: seen.append(own) or "")
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    process = psutil.Popen([sys.executable, "-c", code])
    load = OtherLoad(0.5)
    try:
        eventually(lambda: load.words() or seen[-1] > 0.2, "its child takes a core")
    finally:
        for each in (*process.children(), process):
            each.kill()
        process.wait()


@pytest.mark.skipif(usable_cores() < (psutil.cpu_count() or 1), reason="a part of a machine can't be kept busy")
def test_other_programs_are_told_of() -> None:
    # Begun by a shell that has ended: below nothing of ours.
    script = " ".join('"$@" >/dev/null & echo $!;' for _ in range(psutil.cpu_count() or 1))
    command = ["sh", "-c", script, "sh", sys.executable, "-c", BUSY]
    shell = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    others = [psutil.Process(int(pid)) for pid in shell.stdout.split()]
    try:
        load = OtherLoad(0.5)
        assert "other programs take" in eventually(load.words, "a word")
    finally:
        for process in others:
            process.kill()

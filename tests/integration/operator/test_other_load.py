"""Other programs on a run's cores, with real ones."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest
from rljob.cores import usable_cores
from rljob_operator.local import other_load
from rljob_operator.local.other_load import OtherLoad, taken_by_others

BUSY = "import time; end = time.monotonic() + 20\nwhile time.monotonic() < end: pass"


@pytest.mark.parametrize(
    ("busy", "own", "said"),
    [(2.0, 1.0, "take 1.0 of this machine's 2 cores"), (1.6, 0.6, ""), (2.0, 1.8, ""), (2.0, 2.1, "")],
)
def test_what_is_much(busy: float, own: float, said: str) -> None:
    assert said in taken_by_others(2, busy, own)
    assert bool(said) == bool(taken_by_others(2, busy, own))


@pytest.mark.skipif(usable_cores() < (psutil.cpu_count() or 1), reason="a part of a machine can't be kept busy")
def test_programs_below_this_one_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_load, "_LOOK_SECONDS", 0.0)
    command, cores = [sys.executable, "-c", BUSY], psutil.cpu_count() or 1
    mine = [subprocess.Popen(command) for _ in range(cores)]
    try:
        assert _said_within_seconds(2.0) == "", "they are below this process"
    finally:
        for process in mine:
            process.kill()
            process.wait()
    # Begun by a shell that has ended: below nothing of ours.
    script = " ".join('"$@" >/dev/null & echo $!;' for _ in range(cores))
    shell = subprocess.run(["sh", "-c", script, "sh", *command], stdout=subprocess.PIPE, text=True, check=True)
    others = [psutil.Process(int(pid)) for pid in shell.stdout.split()]
    try:
        assert "other programs take" in _said_within_seconds(2.0)
    finally:
        for process in others:
            process.kill()


def _said_within_seconds(seconds: float) -> str:
    load = OtherLoad()
    psutil.cpu_percent(seconds)
    return load.words()

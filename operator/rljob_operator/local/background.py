"""The controller of a run in a session of its own: the program that starts it may end, and the run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rljob.threads import start_contained

from rljob_operator.local.lock import ControllerLock
from rljob_operator.local.run_folder import CONTROLLER_LOG, JOB_FILE


def start_controller(run_dir: Path, manifest: str = JOB_FILE, options: Sequence[str] = ()) -> int:
    """Start `rljob run --resume` with ``options`` on what is stored in ``run_dir`` (a whole path), a run or, by its ``manifest``,
    an experiment; answers its pid at once.

    It has the run's lock from before it exists, so that a look at the run shows that it has a controller; a SIGTERM that
    comes while it loads is kept for it. What this program can import, it can. What it prints is in ``logs/controller.log``.
    Raises RunFolderProblem where the run has a controller, and OSError where the machine is full.
    """
    program = [sys.executable, "-m", "rljob_operator", "run", str(run_dir / manifest), "--run-dir", str(run_dir)]
    ours = [os.path.abspath(each) for each in sys.path if not each.startswith((sys.prefix, sys.base_prefix))]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with ControllerLock(run_dir, for_another=True) as lock, (run_dir / CONTROLLER_LOG).open("ab") as log:
            process = subprocess.Popen(
                [*program, "--resume", *options],
                stdin=lock.file,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(ours)},
                start_new_session=True,
            )
            lock.name(process.pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    start_contained(f"rljob-run-{process.pid}", partial(_reap, process))
    return process.pid


def _reap(process: subprocess.Popen[bytes]) -> None:
    """So that no zombie is left of it, and nothing is said where the handle is gone before the run has ended."""
    process.wait()

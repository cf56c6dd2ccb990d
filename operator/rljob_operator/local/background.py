"""The controller of a run in a session of its own: the program that starts it may end, and the run goes on."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rljob.child import Child
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
    words = ["run", str(run_dir / manifest), "--run-dir", str(run_dir), "--resume", *options]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with ControllerLock(run_dir, for_another=True) as lock, (run_dir / CONTROLLER_LOG).open("ab") as log:
            process = Child(
                "rljob_operator.cli",
                words,
                title=f"rljob run {run_dir}",
                orphaned=None,
                stdin=lock.file,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            lock.name(process.pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    start_contained(f"rljob-run-{process.pid}", process.wait)  # so that no zombie is left of it
    return process.pid

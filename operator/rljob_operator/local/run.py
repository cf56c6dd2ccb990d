"""`rljob run`: one job on this machine, from its manifest to its verdict."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from rich.console import Console
from rljob.api import RLJob, not_applied_locally
from rljob.api.status import RLJobStatus
from rljob.telemetry.report import write_report

from rljob_operator.controller import Interrupt, Tick, run_job
from rljob_operator.local import preflight, run_folder
from rljob_operator.local.substrate import LocalSubstrate
from rljob_operator.model import Decision, End
from rljob_operator.view.lines import LineView
from rljob_operator.view.live import LiveView

EXIT_CODES = {End.COMPLETE: 0, End.STOPPED: 0, End.FAILED: 1, End.INTERRUPTED: 130}


def run(job: RLJob, run_dir: Path, *, resume: bool, max_seconds: float | None, console: Console) -> int:
    """Train ``job`` in ``run_dir`` and answer the exit code: 0 complete or stopped as asked, 1 failed, 130 interrupted.

    Raises RunFolderProblem, PreflightProblem or EnvironmentProblem before anything has been started.
    """
    preflight.check(job)
    manifest = run_folder.prepare(run_dir, job, resume=resume)
    _say(console, f"run folder: {run_dir}")
    ignored = not_applied_locally(job)
    if ignored:
        _say(console, f"not applied on one machine: {', '.join(ignored)}")
    substrate = LocalSubstrate(job, manifest, run_dir)
    interrupt = Interrupt()
    interrupt.install()
    notices = _Notices(job, console)
    started = time.time()
    view = LiveView(job, console) if console.is_terminal else LineView(job, console)
    try:
        with view:

            def report(tick: Tick) -> None:
                if tick.decision.status is not tick.observation.status:
                    run_folder.write_json(run_dir / "status.json", tick.decision.status.document())
                notices.show(tick)
                view.show(tick)

            status = run_folder.read_status(run_dir) if resume else RLJobStatus()
            decision = run_job(
                job, substrate, interrupt=interrupt, status=status, max_seconds=max_seconds, report=report
            )
    except KeyboardInterrupt:
        _say(console, "stopped at once: what was not written yet is lost")
        return EXIT_CODES[End.INTERRUPTED]
    finally:
        substrate.close()
    return _finish(run_dir, decision, started, console)


def _finish(run_dir: Path, decision: Decision, started_unix: float, console: Console) -> int:
    outcome = decision.outcome
    assert outcome is not None, "a finished decision has an outcome"
    resume = f"rljob run {shlex.quote(str(run_dir / 'job.yaml'))} --run-dir {shlex.quote(str(run_dir))} --resume"
    finished = time.time()
    document = {
        "state": str(outcome.end),
        "reason": outcome.reason,
        "message": outcome.message,
        "seconds": round(finished - started_unix, 1),
        "started_unix": started_unix,
        "finished_unix": finished,
        "resume": resume,
    }
    run_folder.write_json(run_dir / "outcome.json", document)
    report = write_report(run_dir)
    _say(console, f"report: {report}")
    _say(console, f"{outcome.end} ({outcome.reason}) after {finished - started_unix:.0f} s: {outcome.message}")
    if outcome.end is End.FAILED:
        _say(console, f"logs: {run_dir / 'logs'}")
    if outcome.end is End.COMPLETE:
        _say(console, f"score it: rljob eval {shlex.quote(str(run_dir))}")
    else:
        _say(console, f"resume: {resume}")
    return EXIT_CODES[outcome.end]


class _Notices:
    """Lines that are said once, as soon as they are known."""

    def __init__(self, job: RLJob, console: Console) -> None:
        self._wants_accelerator = job.spec.learner.accelerator.count > 0
        self._resource = job.spec.learner.accelerator.resource_name
        self._console = console

    def show(self, tick: Tick) -> None:
        """Say that the learner runs on the CPU where an accelerator was asked for."""
        device = tick.observation.figure("device")
        if not self._wants_accelerator or device is None:
            return
        self._wants_accelerator = False
        if str(device).startswith("cpu"):
            _say(
                self._console,
                f"learner.accelerator asks for {self._resource}, none is here: the learner runs on the CPU",
            )


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)

"""`rljob run`: one job on this machine, from its manifest to its verdict."""

import contextlib
import shlex
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rljob.api import RLJob, not_applied_locally, parse_job
from rljob.api.conditions import ConditionType, Reason
from rljob.api.effective import note_on
from rljob.api.examples import ZOO, examples_for
from rljob.api.exit_codes import EXIT_FAILURE, EXIT_NOT_SAVED
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob.envs import EnvironmentSpec, hand_over
from rljob.sources import keep_sources
from rljob.telemetry.report import write_report
from rljob.threads import usable_cores
from rljob.tracking.tracker import wanted

from rljob_operator.core.conditions.job import sent_to
from rljob_operator.core.conditions.update import false, merged, true
from rljob_operator.core.decision import Decision, End
from rljob_operator.core.member import Role
from rljob_operator.core.rules.actors import oversubscribed
from rljob_operator.core.turn import Turn
from rljob_operator.local import preflight
from rljob_operator.local.fork_server import LEAVE_SECONDS
from rljob_operator.local.job_view import read_status, running_members
from rljob_operator.local.launch import Launcher
from rljob_operator.local.log_files import tail
from rljob_operator.local.loop import Interrupt, raise_when_asked_to_end, run_job
from rljob_operator.local.other_load import OtherLoad
from rljob_operator.local.run_folder import (
    OUTCOME_FILE,
    STATUS_FILE,
    ControllerLock,
    RunFolderProblem,
    new_run_dir,
    prepare,
    resume_command,
    write_json,
)
from rljob_operator.local.spec_store import SpecStore, StoredRun, replace_spec
from rljob_operator.local.substrate import LocalSubstrate
from rljob_operator.local.trackers import Trackers
from rljob_operator.view.live import LineView, LiveView, say
from rljob_operator.view.run_figures import likely_need

EXIT_CODES = {End.COMPLETE: 0, End.STOPPED: 0, End.FAILED: 1, End.INTERRUPTED: 130}
_LOG_LINES_SHOWN = 6
_MEASURED_SECONDS = 30.0
"""After so long a run plays as fast as it will."""
_WITHOUT_EXPERIENCE = (
    "its disk may be full, or its Redis full or gone (see its log). What is resumed goes on from the learner's checkpoint, but "
    "with an older replay or an empty one"
)


def start(
    written: dict[str, Any],
    run_dir: Path | None,
    *,
    max_seconds: float | None,
    max_actors: int | None,
    console: Console,
) -> int:
    """Train the job ``written`` in the new folder ``run_dir`` (None: one named after job and time) and answer the exit code:
    0 complete or stopped as asked, 1 failed or without a step within ``max_seconds``, 130 interrupted.

    Raises ManifestError, PreflightProblem or EnvironmentProblem before anything has been started.
    """
    job = parse_job(written)
    wanted(job.spec.tracking)
    with contextlib.closing(Launcher()) as launcher:
        launcher.prepare()  # it loads while the job is looked at
        looked_at = preflight.check(job, new=True)
        run_dir = run_dir or new_run_dir(job.metadata.name)
        prepare(run_dir, resume=False)
        with ControllerLock(run_dir):
            SpecStore(run_dir).create(written)
            say(console, f"run folder: {run_dir}")
            _hand_over(run_dir, job, looked_at, console)
            _note(job, console)
            return _control(run_dir, StoredRun(run_dir), max_seconds, max_actors, launcher, console)


def _hand_over(
    run_dir: Path, job: RLJob, looked_at: tuple[EnvironmentSpec, Mapping[str, Path]], console: Console
) -> None:
    """Leave in the run folder what was found out about the job's environment, and copies of its user's files."""
    spec, files = looked_at
    hand_over(run_dir, job.spec.environment, spec)
    for note in keep_sources(run_dir, files):
        say(console, note)


def _note(job: RLJob, console: Console) -> None:
    """What a user should know of a new run's manifest."""
    spec, notes = job.spec, [note_on(job.spec)]
    if ignored := not_applied_locally(job):
        notes.insert(0, f"not applied on one machine: {', '.join(ignored)}")
    rows = [name for name in examples_for(spec.environment.id) if name.startswith(ZOO)]
    if rows and spec.preset is None and not spec.algorithm.model_fields_set:
        notes.append(f"the zoo has settings for {spec.environment.id}: rljob run {' or '.join(rows)}")
    if spec.replay is not None:
        least = spec.replay.resolved().min_size
        notes.append(f"learning begins when the replay holds {least:,} transitions (replay.rateLimiter.minSize)")
    for note in filter(None, notes):
        say(console, note)


def go_on(
    run_dir: Path,
    written: dict[str, Any] | None,
    *,
    max_seconds: float | None,
    max_actors: int | None,
    console: Console,
) -> int:
    """Go on with the run in ``run_dir``, once the processes of the controller before have ended. The exit code is `start`'s.

    ``written``: a job to store first, or None to take what is stored. A run that has ended for good begins a new status. One that
    is stored and was never begun is looked at as a new one, and where it can't be begun, its status says so, too.
    Raises as `start`, and RunFolderProblem where something of the run does not end.
    """
    prepare(run_dir, resume=True)
    with ControllerLock(run_dir), contextlib.closing(Launcher()) as launcher:
        with _told_in_status(run_dir):
            raise_when_asked_to_end()
            launcher.prepare()
            _await_end(run_dir, console)
            if written is not None:
                parse_job(written)
                SpecStore(run_dir).edit(replace_spec(written))
            stored = StoredRun(run_dir)
            job, new = stored.desired().job, stored.status.start_time is None
            if stored.status.finished:
                stored.status = RLJobStatus()
            say(console, f"run folder: {run_dir}")
            for note in stored.notes:
                say(console, f"warning: {note}")
            if new:
                _note(job, console)
            wanted(job.spec.tracking)
            _hand_over(run_dir, job, preflight.check(job, new=new), console)
        return _control(run_dir, stored, max_seconds, max_actors, launcher, console)


@contextlib.contextmanager
def _told_in_status(run_dir: Path) -> Iterator[None]:
    """What keeps a run from its very first start becomes its status: its controller's terminal may have no reader."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as problem:
        if read_status(run_dir)[0].start_time is None:
            write_json(run_dir / STATUS_FILE, _not_begun(problem).document(), essential=False)
        raise


def _not_begun(why: BaseException) -> RLJobStatus:
    """The status of a run that was refused, or stopped, before anything was started."""
    now, message = time.time(), str(why) or type(why).__name__
    updates = [
        false(ConditionType.READY, Reason.FAILED, message),
        true(ConditionType.FAILED, Reason.FAILURE_POLICY_RULE, message),
    ]
    if stopped := isinstance(why, KeyboardInterrupt):
        updates = [
            false(ConditionType.READY, Reason.SESSION_ENDED, "stopped before any role started; resuming starts it")
        ]
    return RLJobStatus(completion_time=None if stopped else now, conditions=merged([], updates, 0, now))


def _await_end(run_dir: Path, console: Console) -> None:
    """Wait for the processes of a controller that was killed: they leave in good order. Raises RunFolderProblem."""
    deadline = time.monotonic() + LEAVE_SECONDS + 10.0
    if left := running_members(run_dir):
        say(console, f"processes of the previous controller are ending: {', '.join(left)}")
    while left := running_members(run_dir):
        if time.monotonic() >= deadline:
            which = ", ".join(f"{name} (pid {pid})" for name, pid in left.items())
            raise RunFolderProblem(f"{run_dir}: processes of this run do not end: {which}; kill them first")
        time.sleep(0.1)


def _control(
    run_dir: Path,
    stored: StoredRun,
    max_seconds: float | None,
    max_actors: int | None,
    launcher: Launcher,
    console: Console,
) -> int:
    job = stored.desired().job
    asked, cores = job.spec.actors.replicas, usable_cores()
    trackers = Trackers(run_dir, partial(say, console))
    substrate = LocalSubstrate(
        run_dir, stored.spec.effective_path, job, max_actors, cores, launcher, untracked=trackers.untracked
    )
    if job.spec.autoscaling.mode == "Disabled" and max_actors is None and asked > cores:
        say(console, f"{asked} actors as asked for, {oversubscribed(asked, cores)}; --max-actors bounds them")
    interrupt, started = Interrupt(), time.monotonic()
    interrupt.install()
    notices = _Notices(job, stored, console)
    view = LiveView(job, console) if console.is_terminal else LineView(console)
    over = False
    try:
        with view:

            def report(turn: Turn) -> None:
                trackers.look(turn.desired.job.spec.tracking)
                with contextlib.suppress(OSError):  # the terminal is gone (SIGHUP), and the job is still to be drained
                    notices.show(turn)
                    view.show(turn)

            decision = run_job(
                stored,
                substrate,
                stored.status,
                interrupt=interrupt,
                max_seconds=max_seconds,
                report=report,
            )
            over = True
    except KeyboardInterrupt:
        over = True
        say(console, "stopped at once; data not yet written is lost")
        trackers.close(0.0)
        return EXIT_CODES[End.INTERRUPTED]
    finally:
        substrate.close(kill=over)
    code = _finish(run_dir, decision, time.monotonic() - started, notices.steps, console)
    with contextlib.suppress(KeyboardInterrupt):  # a user who does not want to wait sends the rest later
        unsent = sent_to(trackers.close())
        if decision.status.condition(unsent.type) is not None or unsent.message:
            conditions = merged(decision.status.conditions, [unsent], stored.desired().generation, time.time())
            stored.write_status(decision.status.model_copy(update={"conditions": conditions}), at_once=True)
    return code


def _finish(run_dir: Path, decision: Decision, seconds: float, steps: int, console: Console) -> int:
    outcome = decision.outcome
    assert outcome is not None, "a finished decision has an outcome"
    resume = resume_command(run_dir)
    finished = time.time()
    document = {
        "state": str(outcome.end),
        "reason": outcome.reason,
        "message": outcome.message,
        "seconds": round(seconds, 1),
        "started_unix": finished - seconds,
        "finished_unix": finished,
        **({} if outcome.end is End.COMPLETE else {"resume": resume}),
    }
    try:
        write_json(run_dir / OUTCOME_FILE, document)
        say(console, f"report: {write_report(run_dir)}")
    except OSError as error:
        say(console, f"warning: {OUTCOME_FILE} and the report can't be written: {error.strerror}")
    say(console, f"{outcome.end} ({outcome.reason}) after {seconds:.0f} s: {outcome.message}")
    if outcome.end is End.FAILED:
        for failure in decision.status.failures[-1:]:
            log = run_dir / "logs" / f"{failure.pod_name}.log"
            say(console, "\n  ".join([f"last lines of {log}:", *tail(log, _LOG_LINES_SHOWN)]))
        say(console, f"logs: {run_dir / 'logs'}")
    last = f"resume: {resume}"
    if outcome.end is End.COMPLETE:
        last = "there is no policy to score: the run ended before its first update, which is before any checkpoint"
        if decision.status.checkpoint:
            last = f"score it: rljob eval {shlex.quote(str(run_dir))}"
    say(console, last)
    if outcome.reason == "MaxSecondsReached" and not steps:
        say(console, f"no step has arrived yet: {run_dir / 'logs'} may say why")
        return EXIT_FAILURE
    return EXIT_CODES[outcome.end]


class _Notices:
    """Lines that are printed once, as soon as they are known."""

    def __init__(self, job: RLJob, stored: StoredRun, console: Console) -> None:
        self._spec, self._stored, self._console = job.spec, stored, console
        self._others: OtherLoad | None = OtherLoad()
        self._wants_accelerator = job.spec.learner.accelerator.count == 1
        self._problem = ""
        self._unsaved: set[str] = set()
        self._estimated = False
        self.steps = 0

    def show(self, turn: Turn) -> None:
        """Print what this reconciliation has that was not printed before."""
        for line in self._new(turn, turn.observed.learner or LearnerStatus()):
            say(self._console, line)

    def _new(self, turn: Turn, learner: LearnerStatus) -> Iterator[str]:
        if self._stored.problem != self._problem:
            self._problem = self._stored.problem
            yield f"warning: {self._problem}" if self._problem else "the status is written again"
        for member in turn.observed.of(Role.REPLAY):
            if member.exit_code == EXIT_NOT_SAVED and member.incarnation not in self._unsaved:
                self._unsaved.add(member.incarnation)
                yield f"warning: {member.name} could not save its experience: {_WITHOUT_EXPERIENCE}"
        self.steps = learner.steps_total or self.steps
        if not self._estimated and turn.elapsed_seconds >= _MEASURED_SECONDS:
            rate = learner.raw_frames_per_second or 0.0
            self._estimated = bool(rate)
            if need := likely_need(self._spec, learner.raw_frames_total or 0, rate):
                yield need
        if self._others is not None and (taken := self._others.words()):
            self._others = None
            yield taken
        if self._wants_accelerator and learner.device is not None:
            self._wants_accelerator = False
            if learner.device.startswith("cpu"):
                tried = any("instead of" in place for place in learner.compute_seconds)
                why = "an update is short on the CPU" if tried else "none is here"
                asked = self._spec.learner.accelerator.resource_name
                yield f"learner.accelerator asks for {asked}, {why}: the learner runs on the CPU"

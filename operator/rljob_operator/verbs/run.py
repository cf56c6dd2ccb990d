"""`rljob run`: one job on this machine, from its manifest to its verdict."""

import contextlib
import shlex
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rljob.api import RLJob, not_applied_locally, parse_job
from rljob.api.conditions import ConditionType, Reason
from rljob.api.effective import note_on
from rljob.api.examples import ZOO, examples_for
from rljob.api.exit_codes import EXIT_FAILURE, EXIT_NOT_SAVED
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import Condition, RLJobStatus
from rljob.api.status_model import MAX_MESSAGE
from rljob.envs import EnvironmentSpec, hand_over
from rljob.sources import keep_sources
from rljob.telemetry.report import write_report
from rljob.threads import usable_cores
from rljob.tracking.tracker import wanted

from rljob_operator.core.conditions.job import sent_to
from rljob_operator.core.conditions.update import merged
from rljob_operator.core.decision import Decision, End
from rljob_operator.core.member import Role
from rljob_operator.core.rules.actors import oversubscribed
from rljob_operator.core.turn import Turn
from rljob_operator.local import preflight, run_folder
from rljob_operator.local.fork_server import LEAVE_SECONDS
from rljob_operator.local.job_view import StatusFile, running_members
from rljob_operator.local.launch import Launcher
from rljob_operator.local.log_files import tail
from rljob_operator.local.loop import Interrupt, raise_when_asked_to_end, run_job
from rljob_operator.local.other_load import OtherLoad
from rljob_operator.local.run_folder import OUTCOME_FILE, ControllerLock
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
        run_dir = run_dir or run_folder.new_run_dir(job.metadata.name)
        run_folder.prepare(run_dir, resume=False)
        with ControllerLock(run_dir):
            SpecStore(run_dir).create(written)
            say(console, f"run folder: {run_dir}")
            _hand_over(run_dir, job, looked_at, console)
            _note(job, console)
            return _control(run_dir, StoredRun(run_dir), Interrupt(), max_seconds, max_actors, launcher, console)


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
    ignored = not_applied_locally(job)
    passed_over = f"not applied on one machine: {', '.join(ignored)}" if ignored else ""
    for note in filter(None, (passed_over, note_on(job.spec), _in_zoo(job), _begins(job))):
        say(console, note)


def _in_zoo(job: RLJob) -> str:
    """Which rows of the zoo have settings for an environment that the manifest names without any."""
    if job.spec.preset is not None or job.spec.algorithm.model_fields_set:
        return ""
    rows = [name for name in examples_for(job.spec.environment.id) if name.startswith(ZOO)]
    return f"the zoo has settings for {job.spec.environment.id}: rljob run {' or '.join(rows)}" if rows else ""


def _begins(job: RLJob) -> str:
    """After how many transitions learning begins, where a replay is filled first."""
    if job.spec.replay is None:
        return ""
    least = job.spec.replay.resolved().min_size
    return f"learning begins when the replay holds {least:,} transitions (replay.rateLimiter.minSize)"


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
    run_folder.prepare(run_dir, resume=True)
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
        return _control(run_dir, stored, Interrupt(), max_seconds, max_actors, launcher, console)


@contextlib.contextmanager
def _told_in_status(run_dir: Path) -> Iterator[None]:
    """What keeps a run from its very first start becomes its status: its controller's terminal may have no reader."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as problem:
        file = StatusFile(run_dir)
        if (file.load() or RLJobStatus()).start_time is None:
            file.write(_not_begun(problem), at_once=True)
        raise


def _not_begun(why: BaseException) -> RLJobStatus:
    """The status of a run that was refused, or stopped, before anything was started."""
    now = time.time()

    def condition(type: ConditionType, status: Literal["True", "False"], reason: Reason, message: str) -> Condition:
        return Condition(type=type, status=status, reason=reason, message=message, last_transition_time=now)

    if isinstance(why, KeyboardInterrupt):
        stopped = "stopped before any role started; resuming starts it"
        return RLJobStatus(conditions=[condition(ConditionType.READY, "False", Reason.SESSION_ENDED, stopped)])
    message = (str(why) or type(why).__name__)[:MAX_MESSAGE]
    ready = condition(ConditionType.READY, "False", Reason.FAILED, message)
    failed = condition(ConditionType.FAILED, "True", Reason.FAILURE_POLICY_RULE, message)
    return RLJobStatus(completion_time=now, conditions=[ready, failed])


def _await_end(run_dir: Path, console: Console) -> None:
    """Wait for the processes of a controller that was killed: they leave in good order. Raises RunFolderProblem."""
    deadline = time.monotonic() + LEAVE_SECONDS + 10.0
    if left := running_members(run_dir):
        say(console, f"processes of the previous controller are ending: {', '.join(left)}")
    while left := running_members(run_dir):
        if time.monotonic() >= deadline:
            which = ", ".join(f"{name} (pid {pid})" for name, pid in left.items())
            raise run_folder.RunFolderProblem(f"{run_dir}: processes of this run do not end: {which}; kill them first")
        time.sleep(0.1)


def _control(
    run_dir: Path,
    stored: StoredRun,
    interrupt: Interrupt,
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
    if job.spec.autoscaling.mode == "Disabled" and max_actors is None and asked > cores and not interrupt.requested:
        say(console, f"{asked} actors as asked for, {oversubscribed(asked, cores)}; --max-actors bounds them")
    interrupt.install()
    started = time.monotonic()
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
    resume = run_folder.resume_command(run_dir)
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
        run_folder.write_json(run_dir / OUTCOME_FILE, document)
        say(console, f"report: {write_report(run_dir)}")
    except OSError as error:
        say(console, f"warning: {OUTCOME_FILE} and the report can't be written: {error.strerror}")
    say(console, f"{outcome.end} ({outcome.reason}) after {seconds:.0f} s: {outcome.message}")
    if outcome.end is End.FAILED:
        _show_failures(run_dir, decision.status, console)
    if outcome.end is End.COMPLETE:
        nothing = "there is no policy to score: the run ended before its first update, which is before any checkpoint"
        score = f"score it: rljob eval {shlex.quote(str(run_dir))}"
        say(console, score if decision.status.checkpoint else nothing)
    else:
        say(console, f"resume: {resume}")
    if outcome.reason == "MaxSecondsReached" and not steps:
        say(console, f"no step has arrived yet: {run_dir / 'logs'} may say why")
        return EXIT_FAILURE
    return EXIT_CODES[outcome.end]


def _show_failures(run_dir: Path, status: RLJobStatus, console: Console) -> None:
    """The last lines of the log of the member that failed last, and where the logs are."""
    if status.failures:
        log = run_dir / "logs" / f"{status.failures[-1].pod_name}.log"
        lines = tail(log, _LOG_LINES_SHOWN)
        if lines:
            say(console, f"last lines of {log}:")
            for line in lines:
                say(console, f"  {line}")
    say(console, f"logs: {run_dir / 'logs'}")


class _Notices:
    """Lines that are printed once, as soon as they are known."""

    def __init__(self, job: RLJob, stored: StoredRun, console: Console) -> None:
        self._others: OtherLoad | None = OtherLoad()
        self._wants_accelerator = job.spec.learner.accelerator.count == 1
        self._resource = job.spec.learner.accelerator.resource_name
        self._stored = stored
        self._problem = ""
        self._unsaved: set[str] = set()
        self._console = console
        self._spec = job.spec
        self._estimated = False
        self.steps = 0

    def show(self, turn: Turn) -> None:
        """Print what this reconciliation has that was not printed before."""
        if self._stored.problem != self._problem:
            self._problem = self._stored.problem
            say(self._console, f"warning: {self._problem}" if self._problem else "the status is written again")
        for member in turn.observed.of(Role.REPLAY):
            if member.exit_code == EXIT_NOT_SAVED and member.incarnation not in self._unsaved:
                self._unsaved.add(member.incarnation)
                say(self._console, f"warning: {member.name} could not save its experience: {_WITHOUT_EXPERIENCE}")
        learner = turn.observed.learner or LearnerStatus()
        self.steps = learner.steps_total or self.steps
        if not self._estimated and turn.elapsed_seconds >= _MEASURED_SECONDS:
            rate = learner.raw_frames_per_second or 0.0
            need = likely_need(self._spec, learner.raw_frames_total or 0, rate)
            self._estimated = bool(rate)
            if need:
                say(self._console, need)
        if self._others is not None and (taken := self._others.words()):
            self._others = None
            say(self._console, taken)
        if not self._wants_accelerator or learner.device is None:
            return
        self._wants_accelerator = False
        if learner.device.startswith("cpu"):
            tried = any("instead of" in place for place in learner.compute_seconds)
            why = "an update is short on the CPU" if tried else "none is here"
            say(self._console, f"learner.accelerator asks for {self._resource}, {why}: the learner runs on the CPU")

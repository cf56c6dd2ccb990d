"""An experiment on this machine: a folder with its manifest, its journal, and a run folder for each of its runs. Each run that
plays has a controller's process, each that is judged an `rljob eval`.
"""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from rljob.api import ManifestError, parse_job
from rljob.api.document import dump_document
from rljob.api.exit_codes import EXIT_INVALID
from rljob.api.experiment_trials import Experiment
from rljob.api.status import Condition, RLJobStatus
from rljob.child import Child
from rljob.files import replace

from rljob_operator.experiments.driver import Driver, Sight, judging, scored
from rljob_operator.experiments.journal import Entry, Journal, JournalProblem, replayed, whole_lines, written
from rljob_operator.experiments.population import copied
from rljob_operator.experiments.state import ExperimentState, Mismatch, Run
from rljob_operator.experiments.summary import best_in_words, fresh_verdict, summary
from rljob_operator.local.job_view import look
from rljob_operator.local.log_files import tail
from rljob_operator.local.run_folder import (
    EXPERIMENT_FILE,
    JOB_FILE,
    OUTCOME_FILE,
    STATUS_FILE,
    RunFolderProblem,
    holder,
    read_json,
    telling,
    write_json,
)
from rljob_operator.local.spec_store import SpecStore, StoredJob, replace_spec
from rljob_operator.view.job_view import JobView

JOURNAL_FILE: Final = "journal.jsonl"


class ExperimentFolder(Journal):
    """Its journal, open for its one controller. Raises RunFolderProblem where the journal can't be gone on with."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._journal = folder / JOURNAL_FILE
        try:
            with telling(self._journal):
                self._file = os.open(self._journal, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
                text = whole_lines(self._journal.read_bytes())
                os.ftruncate(self._file, len(text))
            self.read(text)
        except JournalProblem as problem:
            raise RunFolderProblem(f"{self._journal}: {problem}; begin a new experiment in another folder") from None

    def take(self, document: Mapping[str, Any]) -> None:
        """Begin with the experiment of a manifest, or go on with it. Raises RunFolderProblem where it is another experiment."""
        try:
            entry = self.state.taking(document)
        except Mismatch as problem:
            raise RunFolderProblem(
                f"{self.folder / EXPERIMENT_FILE}: {problem}; the rest belongs to a new one"
            ) from None
        if entry is not None:
            replace(self.folder / EXPERIMENT_FILE, dump_document(dict(document)), durable=True)
            (self.folder / OUTCOME_FILE).unlink(missing_ok=True)  # where it had ended, it goes on
            self.add(entry)
            self.store()

    def store(self) -> list[Entry]:
        """Write the lines that were added, and answer them; they are on the disk when this returns. Raises RunFolderProblem where
        the disk doesn't take them."""
        if not (entries := self._taken()):
            return entries
        text = written(entries)
        with telling(self._journal, then="; free some space, and resume"):
            if os.write(self._file, text) < len(text):
                raise OSError(28, "No space left on device")
            os.fsync(self._file)
        write_json(self.folder / STATUS_FILE, summary(self.state), essential=False)
        return entries

    def close(self) -> None:
        """Give the journal back."""
        os.close(self._file)


def judgement(folder: Path, run: str, rung: int) -> Path:
    """Where the figures of a run are that is judged at a rung; beside it, in ``.error``, what else that has said."""
    return folder / "logs" / f"{run}-games-{rung}.json"


def read_experiment(folder: Path) -> ExperimentState:
    """What the experiment in ``folder`` is now, with its decisions as they stand, not made again. Raises RunFolderProblem."""
    try:
        state = replayed(whole_lines((folder / JOURNAL_FILE).read_bytes()).splitlines(keepends=True), checked=False)
        assert state.known
    except OSError as error:
        raise RunFolderProblem(f"{folder}: no experiment that has begun: {JOURNAL_FILE}: {error.strerror}") from None
    except (JournalProblem, Mismatch) as problem:
        raise RunFolderProblem(f"{folder / JOURNAL_FILE}: {problem}") from None
    return state


def look_at_experiment(folder: Path) -> JobView:
    """The experiment in ``folder`` now; ``further`` says what each run does that is not over, and why others failed. Raises
    RunFolderProblem."""
    state, attended, since = read_experiment(folder), holder(folder) is not None, time.time()
    judged = sum(bool(run.scores) for (_, seed), run in state.runs.items() if seed == 1)
    now = "Running" if attended else "SessionEnded"
    found = [("Ready", str(attended), now, f"{judged} of {state.known.trials} trials judged")]
    if state.end is not None and not attended and (folder / OUTCOME_FILE).is_file():
        reason = state.end["reason"]
        words = best_in_words(state) if fresh_verdict(state) is not None else "no trial has a score in fresh games"
        found = [("Ready", "True", reason, ""), ("Failed" if state.has_failed else "Complete", "True", reason, words)]
    conditions = [
        Condition(type=type, status=status, reason=reason, message=words, last_transition_time=since)  # type: ignore[arg-type]
        for type, status, reason, words in found
    ]
    return JobView(
        str(folder),
        {**state.known.document, "status": summary(state)},
        RLJobStatus(conditions=conditions),
        attended,
        (),
        further=became(state, folder),
    )


def became(state: ExperimentState, folder: Path | None) -> dict[str, str]:
    """Of each run, by its name: whom it has copied last, what it does where it is not over, and why it has failed. ``folder``: of
    the experiment; None on a cluster."""
    active, found = state.active, dict[str, str]()
    for run in state.runs.values():
        does = [doing(state, run, folder)] if run in active else [f"failed: {run.why}"] if run.why else []
        if words := [*map(copied, run.line[-1:]), *does]:
            found[state.known.run_name(*run.key)] = "; ".join(words)
    return found


def doing(state: ExperimentState, run: Run, folder: Path | None) -> str:
    """What a run that is not over does: it plays, with what is wrong there, or it is judged, with what that has said last."""
    frames, name = f"{state.known.rungs[run.rung]:,} raw frames", state.known.run_name(*run.key)
    if folder is None:
        return f"plays to {frames}, or is judged there"
    judged = judgement(folder, name, run.rung).with_suffix(".error")
    if judged.exists():
        return ": ".join([f"is judged at {frames}", *tail(judged, 1)])
    return ": ".join(filter(None, [f"plays to {frames}", look(folder / name, figures=False).problem]))


_COMMAND: Final = "rljob_operator.cli"
_MOST_STARTS: Final = 3
"""Starts of a run's controller in one session without a result, before the run counts as failed."""


def gone_on(folder: Path, max_actors: int | None, output: IO[bytes]) -> Child:
    """A controller that goes on with the run that is stored in ``folder``, or begins it, until this process ends."""
    bound = [] if max_actors is None else ["--max-actors", str(max_actors)]
    words = ["run", str(folder / JOB_FILE), "--run-dir", str(folder), "--resume", *bound]
    return Child(_COMMAND, words, title=f"rljob run {folder}", stdout=output, stderr=subprocess.STDOUT)


class Runs:
    """All runs of the experiment in ``folder``: the `RunsPlace` that has them in folders."""

    def __init__(self, folder: Path, experiment: Experiment, max_actors: int | None) -> None:
        self._folder, self._experiment, self._max_actors = folder, experiment, max_actors
        self._playing: dict[Path, Child] = {}
        self._judging: dict[tuple[Path, int], Child] = {}
        self._starts = Counter[tuple[Path, int]]()
        self._stores: dict[Path, SpecStore] = {}
        (folder / "logs").mkdir(exist_ok=True)

    def folder(self, run: Run) -> Path:
        """The run folder of a run."""
        return self._folder / self._experiment.run_name(run.trial, run.seed)

    def frames(self, run: Run) -> int:
        """See `RunsPlace`. At its rung a run ends by itself."""
        return self._experiment.rungs[-1 if self._experiment.plays_through else run.rung]

    def sight(self, run: Run) -> Sight:
        """See `RunsPlace`. One whose controller ends again and again without a result has failed."""
        folder, why = self.folder(run), ""
        held, playing, log = self._is_held(folder), self._playing.get(folder), self._log(folder)
        stored = self._stored(folder)
        of_this_rung = stored and stored.job and stored.job.spec.success_policy.raw_frames == self.frames(run)
        job = stored.document if stored and of_this_rung else None
        status = RLJobStatus.model_validate(read_json(folder / STATUS_FILE), by_alias=True, by_name=False)
        told = not status.finished if held else status.finished and (folder / OUTCOME_FILE).is_file()
        if job is not None and told:  # a controller that is loading has not told that it goes on after the rung before
            return Sight(not held, job, status)
        if playing is not None and not held:
            if playing.returncode == EXIT_INVALID:
                why = " ".join(line.removeprefix("rljob: ") for line in tail(log, 1))
            elif self._starts[folder, run.rung] >= _MOST_STARTS:
                why = f"its controller has ended {_MOST_STARTS} times (last with {playing.returncode}); see {log}"
        return Sight(not held, job, why=why)

    def judged(self, run: Run, rung: int) -> dict[str, Any] | None:
        """See `RunsPlace`. As many are judged at a time as may play."""
        folder = self.folder(run)
        output = judgement(self._folder, folder.name, rung)
        errors = output.with_suffix(".error")
        process = self._judging.get((folder, rung))
        if process is None:
            if sum(each.poll() is None for each in self._judging.values()) < self._experiment.spec.parallelism:
                words = ["eval", str(folder), *judging(self._experiment, run, rung), "--json"]
                title, end = f"rljob eval {folder}", signal.SIGKILL
                with output.open("wb") as out, errors.open("wb") as err:
                    self._judging[folder, rung] = Child(
                        _COMMAND, words, title=title, orphaned=end, stdout=out, stderr=err
                    )
            return None
        if process.poll() is None:
            return None
        del self._judging[folder, rung]
        said = " ".join(tail(errors, 1)) or f"rljob eval ended with {process.returncode}"
        frames = (read_json(folder / STATUS_FILE).get("progress") or {}).get("rawFrames", 0)
        return scored(read_json(output) if process.returncode == 0 else {}, frames, said)

    def lead(self, driver: Driver) -> None:
        """Make what is missing, have what is to play follow its settings, and start it; ask all else to end in good order."""
        active = {run.key for run in driver.journal.state.active}
        for run in driver.journal.state.runs.values():
            playing = self._playing.get(self.folder(run))
            if driver.plays(run):
                self._play(run, driver)
            elif run.key not in active and playing is not None:
                playing.leave()

    def _play(self, run: Run, driver: Driver) -> None:
        folder, now, playing = self.folder(run), time.time(), self._playing.get(self.folder(run))
        held, stored = self._is_held(folder), self._stored(folder)
        if (
            held and stored is None and playing is not None
        ):  # its folder was deleted; it is made again when it has ended
            playing.leave()
        if held and (stored is None or (stored.job and stored.document == driver.wanted(run, stored.document, now))):
            return

        def change(document: dict[str, Any]) -> None:
            if not held:
                replace_spec(wanted)(document)  # the template may have changed, too
            document.update(driver.wanted(run, document, now))

        try:
            wanted = self._experiment.manifest(*run.key, self.frames(run), run.overrides or None)
            parse_job(wanted)
            if not held:
                self._give_up_judging(folder)
                (folder / OUTCOME_FILE).unlink(missing_ok=True)  # that of the rung before
            if stored is not None:
                self._stores[folder].edit(change)
            else:
                SpecStore(folder).create(wanted)
        except ManifestError as problem:  # its job.yaml was changed by hand
            driver.fail(run, f"it can't follow: {problem}")
        except RunFolderProblem as problem:
            if not isinstance(problem.__cause__, FileNotFoundError):  # else it is being deleted
                raise
        else:
            if not held:
                with self._log(folder).open("ab") as output:
                    self._playing[folder] = gone_on(folder, self._max_actors, output)
                self._starts[folder, run.rung] += 1

    def _give_up_judging(self, *folders: Path) -> None:
        """At once; of a run that begins again what is left of its life before, in a folder that was deleted."""
        for key in [key for key in self._judging if key[0] in folders]:
            process = self._judging.pop(key)
            process.leave()
            process.wait()

    def end(self, *, at_once: bool = False) -> None:
        """Ask everything to end: runs in good order, which can be resumed, unless ``at_once``; judgements at once."""
        for playing in self._playing.values():
            playing.leave()
            if at_once:
                playing.terminate()  # the second request
        self._give_up_judging(*(folder for folder, _ in self._judging))

    @property
    def left(self) -> list[str]:
        """Runs whose controllers have not ended yet."""
        return [folder.name for folder, playing in self._playing.items() if playing.poll() is None]

    def _is_held(self, folder: Path) -> bool:
        """Whether a controller has the run: one of this session, or one of a session before, which is ending."""
        playing = self._playing.get(folder)
        return (playing is not None and playing.poll() is None) or holder(folder) is not None

    def _stored(self, folder: Path) -> StoredJob | None:
        """What is stored of a run; None where its folder is not there."""
        with suppress(RunFolderProblem):
            return self._stores.setdefault(folder, SpecStore(folder)).read()
        self._stores.pop(folder)
        return None

    def _log(self, folder: Path) -> Path:
        return self._folder / "logs" / f"{folder.name}.log"

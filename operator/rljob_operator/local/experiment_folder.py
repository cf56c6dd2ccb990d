"""The folder of an experiment on this machine: its manifest, its journal, and a run folder for each of its runs; and what its
journal says of its trials, each with its score, its runs, and what became of it."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from rljob.api.document import dump_document
from rljob.api.status import Condition, RLJobStatus
from rljob.files import replace

from rljob_operator.experiments.journal import Journal, JournalProblem, replayed, whole_lines
from rljob_operator.experiments.population import copied, schedule
from rljob_operator.experiments.state import ExperimentState, Mismatch, Run, RunState, over_seeds
from rljob_operator.experiments.summary import best_in_words, fell_back, fresh_verdict, summary
from rljob_operator.local.log_files import tail
from rljob_operator.local.run_folder import (
    EXPERIMENT_FILE,
    OUTCOME_FILE,
    STATUS_FILE,
    RunFolderProblem,
    holder,
    write_json,
)
from rljob_operator.view.job_view import JobView

JOURNAL_FILE: Final = "journal.jsonl"


class ExperimentFolder(Journal):
    """Its journal, open for its one controller. Raises RunFolderProblem where the journal can't be gone on with."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._journal = folder / JOURNAL_FILE
        try:
            self._file = os.open(self._journal, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            text = whole_lines(self._journal.read_bytes())
            os.ftruncate(self._file, len(text))
            self.read(text)
        except OSError as error:
            raise RunFolderProblem(f"{self._journal}: can't be written: {error.strerror}") from None
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

    def store(self) -> None:
        """Write the lines that were added; they are on the disk when this returns. Raises RunFolderProblem where the disk doesn't
        take them."""
        if not (text := self._taken()):
            return
        try:
            if os.write(self._file, text) < len(text):
                raise OSError(28, "No space left on device")
            os.fsync(self._file)
        except OSError as error:
            raise RunFolderProblem(
                f"{self._journal}: can't be written: {error.strerror}; free some space, and resume"
            ) from None
        write_json(self.folder / STATUS_FILE, summary(self.state), essential=False)

    def close(self) -> None:
        """Give the journal back."""
        os.close(self._file)


def judgement(folder: Path, run: str, rung: int) -> Path:
    """Where the figures of a run are that is judged at a rung; beside it, in ``.error``, what else that has said."""
    return folder / "logs" / f"{run}-games-{rung}.json"


def require_experiment(folder: Path) -> None:
    """Raises RunFolderProblem where ``folder`` has no experiment to go on with."""
    if not (folder / EXPERIMENT_FILE).is_file():
        raise RunFolderProblem(
            f"{folder}: nothing to resume here (no {EXPERIMENT_FILE}); leave out --resume to start one"
        )


class Trial(NamedTuple):
    """A trial of an experiment. ``number``: counted from 0."""

    number: int
    settings: Mapping[str, Any]
    """Path of a field -> the value that the trial has there."""
    state: str
    """The state of its first run: Running, Waiting (to be promoted), Done, Pruned or Failed."""
    why: str
    """How that came, in words."""
    mean: float | None
    """Its score: the mean return of whole games with the best weights that it has had, over seeds where several count. None
    before it was judged."""
    standard_error: float | None
    scores: tuple[tuple[int, float, float], ...]
    """Each judgement of its first run: raw frames, mean, standard error."""
    runs: tuple[str | Path, ...]
    """The folders of its runs, by seed; on a cluster the names of RLJobs."""
    schedule: tuple[Mapping[str, Any], ...] = ()
    """Of a member of a population: the settings by which its best weights came about, its donors' first, as ``spec.schedule`` of
    one job."""
    copies: tuple[str, ...] = ()
    """Of a member of a population: whom it has copied, and why."""


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
    """What a run that is not over does: it plays, or it is judged, with what that has said last."""
    frames = f"{state.known.rungs[run.rung]:,} raw frames"
    if folder is None:
        return f"plays to {frames}, or is judged there"
    judged = judgement(folder, state.known.run_name(*run.key), run.rung).with_suffix(".error")
    if not judged.exists():
        return f"plays to {frames}"
    return ": ".join([f"is judged at {frames}", *tail(judged, 1)])


def trials_of(state: ExperimentState, folder: Path | None) -> list[Trial]:
    """The trials that were started, the best first. ``folder``: of the experiment; None on a cluster."""
    ranked = {each.trial: (each.mean, each.standard_error) for each in state.ranking()}
    found = []
    for number in dict.fromkeys([*ranked, *(trial for trial, _ in state.runs)]):
        runs = sorted((run for run in state.runs.values() if run.trial == number), key=lambda run: run.seed)
        scores = tuple((score.raw_frames, score.mean, score.standard_error) for score in runs[0].scores)
        places = tuple(_place(state, run.key, folder) for run in runs)
        mean, error = ranked.get(number, (None, None))
        became = str(runs[0].state), _why(state, runs[0])
        line = tuple(schedule(state, runs[0]) if state.known.spec.population is not None and scores else ())
        copies = tuple(map(copied, runs[0].line))
        found.append(Trial(number, state.settings(number), *became, mean, error, scores, places, line, copies))
    return sorted(found, key=lambda trial: not trial.scores)


def best_of(state: ExperimentState, folder: Path | None) -> tuple[Trial, str] | None:
    """The best trial with its score in games that nothing was chosen by, and of its runs the best one first; and that on a line.
    None before it was judged in them."""
    keys = [run.key for run in state.best()]
    if fresh_verdict(state) is None:
        return None
    keys.sort(key=lambda key: -state.verdicts[key].mean)
    mean, error = over_seeds([state.verdicts[key] for key in keys])
    trial = next(each for each in trials_of(state, folder) if each.number == keys[0][0])
    return trial._replace(
        mean=mean, standard_error=error, runs=tuple(_place(state, key, folder) for key in keys)
    ), best_in_words(state)


def _place(state: ExperimentState, key: tuple[int, int], folder: Path | None) -> str | Path:
    name = state.known.run_name(*key)
    return name if folder is None else folder / name


def _why(state: ExperimentState, run: Run) -> str:
    if run.why:
        return run.why
    if run.state is RunState.PRUNED:
        return "others had higher scores at its raw frames"
    if run.state is RunState.DONE:
        how = "played to its end" if run.rung == len(state.known.rungs) - 1 else "reached its goal"
        return f"{how}; {back}" if (back := fell_back(run)) else how
    return "" if state.end is None else f"the experiment ended before it: {state.end['reason']}"

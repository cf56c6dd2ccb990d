"""The folder of an experiment on this machine: its manifest, its journal, and a run folder for each of its runs."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rljob.api.document import dump_document
from rljob.api.status import Condition, RLJobStatus
from rljob.files import replace

from rljob_operator.experiments.journal import Entry, Journal, JournalProblem, replayed, whole_lines, written
from rljob_operator.experiments.population import copied
from rljob_operator.experiments.state import ExperimentState, Mismatch, Run
from rljob_operator.experiments.summary import best_in_words, fresh_verdict, summary
from rljob_operator.local.job_view import look
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

    def store(self) -> list[Entry]:
        """Write the lines that were added, and answer them; they are on the disk when this returns. Raises RunFolderProblem where
        the disk doesn't take them."""
        if not (entries := self._taken()):
            return entries
        text = written(entries)
        try:
            if os.write(self._file, text) < len(text):
                raise OSError(28, "No space left on device")
            os.fsync(self._file)
        except OSError as error:
            raise RunFolderProblem(
                f"{self._journal}: can't be written: {error.strerror}; free some space, and resume"
            ) from None
        write_json(self.folder / STATUS_FILE, summary(self.state), essential=False)
        return entries

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

"""The folder of an experiment on this machine: its manifest, its journal, and a run folder for each of its runs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rljob.api.yaml_dialect import dump_document
from rljob.files import replace

from rljob_operator.experiments.journal import Journal, JournalProblem, whole_lines
from rljob_operator.experiments.state import Mismatch
from rljob_operator.experiments.summary import summary
from rljob_operator.local.run_folder import (
    EXPERIMENT_FILE,
    OUTCOME_FILE,
    STATUS_FILE,
    RunFolderProblem,
    write_json,
)

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

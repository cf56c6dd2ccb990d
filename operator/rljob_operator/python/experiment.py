"""``rljob.Experiment``: the handle of an experiment, wherever it runs. It holds no state: each look reads its journal anew."""

import math
import time
from collections.abc import Sequence
from pathlib import Path

from rljob_operator.experiments.state import ExperimentState
from rljob_operator.experiments.summary import Trial, best_of, trials_of
from rljob_operator.local.experiment_folder import JOURNAL_FILE
from rljob_operator.local.log_files import tail
from rljob_operator.local.run_folder import CONTROLLER_LOG, holder
from rljob_operator.python.handle import Run, Status
from rljob_operator.verbs.jobs import Place


class Experiment(Run):
    """An experiment that `rljob.run` has started or `rljob.attach` found, on this machine or a cluster. Made by them.

    It has what a `Run` has, but figures, logs and reasons are those of its `runs`. All raise UsageError where it is gone, or its
    journal can't be read.
    """

    @property
    def trials(self) -> Sequence[Trial]:
        """The trials that were started, the best first. Their runs are folders, on a cluster the names of RLJobs."""
        state = self._state()
        return trials_of(state, self.folder) if state.experiment is not None else []

    @property
    def best(self) -> Trial | None:
        """The best trial, with its score in games that no trial was chosen by, and of its ``runs`` the best one first. None
        before the experiment has come to its end."""
        found = best_of(self._state(), self.folder)
        return None if found is None else found[0]

    @property
    def runs(self) -> Sequence[Run]:
        """The handles of all runs, those of the best trial first."""
        return [Run(str(run), self._place) for trial in self.trials for run in trial.runs]

    def _state(self) -> ExperimentState:
        """What its journal says."""
        with self._asking() as ask:
            found: ExperimentState = ask(lambda job: job.experiment())
        return found


class LocalExperiment(Experiment):
    """An experiment in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), Place())
        self._folder = folder

    @property
    def status(self) -> Status:
        """Running, SessionEnded (it was stopped), or how it ended; and the best trial, or how many have a score."""
        running = holder(self._folder) is not None
        if not (self._folder / JOURNAL_FILE).is_file():  # its controller is loading, or has found that it can't begin
            why = " ".join(tail(self._folder / CONTROLLER_LOG, 1))
            return Status("Starting", "") if running else Status("Failed", why)
        return super().status

    def wait(self, timeout_seconds: float | None = None, progress: bool = False) -> Experiment:
        """As `Run.wait`; ``progress`` prints a line whenever another trial has a score."""
        deadline = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
        said = ""
        while holder(self._folder) is not None:  # a look at its trials takes a second where there are a thousand
            if progress and (message := self.status.message) != said:
                said = message
                print(said, flush=True)
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{self._folder} is {self.status.state} after {timeout_seconds:g} s, and goes on")
            time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))
        return self

"""``rljob.run`` and ``rljob.attach``: a job started from Python, and found again; and ``rljob.Experiment``, the handle of an
experiment, wherever it runs, of which each look reads the journal anew.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rljob.api import ManifestError, Problem, as_found, parse_job, with_code, written_job
from rljob.api.document import dump_document
from rljob.api.examples import manifest_file
from rljob.api.experiment import EXPERIMENT_KIND, is_experiment
from rljob.api.experiment_check import parse_experiment
from rljob.api.load import STANDARD_INPUT, read_document
from rljob.api.overrides import Override
from rljob.api.problems import ABSENT, plain
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError
from rljob.files import replace
from rljob.sources import user_path

from rljob_operator.experiments.state import ExperimentState
from rljob_operator.experiments.summary import Trial, best_of, trials_of
from rljob_operator.local import run_folder
from rljob_operator.local.experiment_runs import JOURNAL_FILE
from rljob_operator.local.launch import start_controller
from rljob_operator.local.log_files import tail
from rljob_operator.local.run_folder import CONTROLLER_LOG, EXPERIMENT_FILE, JOB_FILE, holder
from rljob_operator.local.spec_store import SpecStore
from rljob_operator.python.handle import Run, Status, asking_jobs
from rljob_operator.verbs.jobs import Place


def run(
    manifest: str | os.PathLike[str] | Mapping[str, Any],
    *,
    set: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    max_seconds: float | None = None,
    max_actors: int | None = None,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
) -> Run:
    """Start a job and return at once. It goes on when this program ends, and `attach` finds it again. The handle of an
    RLExperiment is an `Experiment`.

    Args:
        manifest: a manifest's file, a manifest as a dict, or the name of an example or a preset.
        set: fields to change, by their paths as in `rljob run --set`: ``{"algorithm.learningRate": 5e-4}``. None removes
            the field, so that its preset or default counts.
        folder: of this run, on this machine; without one ``runs/<name>-<time>``.
        max_seconds, max_actors: as `rljob run --max-seconds` and `--max-actors`, on this machine.
        namespace, context, kubeconfig: any of them means a cluster, where the job is created, with the manifest's folder as by
            `rljob run -n`; that of a dict is the working directory.

    Raises, before anything is started, ManifestError with every problem of the manifest, in the command line's words, and
    UsageError where the folder, the cluster or this install does not allow it. What is found out later, such as an environment
    that can't be made, fails the run: see ``Run.status``.
    """
    place = Place(namespace, context, kubeconfig)
    if not isinstance(set, Mapping | None):
        raise ManifestError([Problem("set", set, "allowed: a dict of paths and values, {'algorithm.gamma': 0.98}")])
    changes = [(path, ABSENT if value is None else value) for path, value in (set or {}).items()]
    written, beside = as_written(manifest, changes)
    experiment = parse_experiment(written) if is_experiment(written) else None
    name = parse_job(written).metadata.name if experiment is None else experiment.name
    if any(place):
        if any(each is not None for each in (folder, max_seconds, max_actors)):
            raise UsageError(
                "folder, max_seconds and max_actors are for a run on this machine; leave out the namespace, or them"
            )
        with asking_jobs(place) as ask:
            name = ask(lambda jobs: jobs.create(*with_code(written, beside)))
        return Run(name, place) if experiment is None else Experiment(name, place)
    require_data_plane("rljob.run")
    bounds = (("--max-seconds", max_seconds), ("--max-actors", max_actors))
    options = [word for name, value in bounds if value is not None for word in (name, str(_at_least_one(name, value)))]
    run_dir = run_folder.new_run_dir(name) if folder is None else user_path(folder)
    run_folder.prepare(run_dir, resume=False)
    run_dir = run_dir.resolve()
    if experiment is not None:
        replace(run_dir / EXPERIMENT_FILE, dump_document(written), durable=True)
        start_controller(run_dir, EXPERIMENT_FILE, options)
        return LocalExperiment(run_dir)
    SpecStore(run_dir).create(written)
    start_controller(run_dir, JOB_FILE, options)
    return Run(str(run_dir), place)


def attach(
    run: str | os.PathLike[str] | None = None,
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
) -> Run:
    """The handle of a run or an experiment that is there: by its folder, or the newest under ``runs/``; with ``namespace``,
    ``context`` or ``kubeconfig`` one of a cluster by its name. However it was started, and whether or not it has ended.

    Raises UsageError where there is none.
    """
    place, name = Place(namespace, context, kubeconfig), None if run is None else os.fspath(run)
    if not any(place):
        folder = run_folder.newest() if name is None else user_path(name)
        if (folder / EXPERIMENT_FILE).is_file():
            return LocalExperiment(folder.resolve())
        return Run(str(run_folder.chosen_run(folder).resolve()), place)
    with asking_jobs(place) as ask:
        name, kind = ask(lambda jobs: ((job := jobs.chosen(name)).look(figures=False).name, job.resource.kind))
    return Experiment(name, place) if kind == EXPERIMENT_KIND else Run(name, place)


def as_written(
    manifest: str | os.PathLike[str] | Mapping[str, Any], overrides: list[Override]
) -> tuple[dict[str, Any], Path]:
    """The job as its user writes it, not checked yet, with files by their whole paths; and its folder. Raises ManifestError."""
    folder = Path()
    if isinstance(manifest, Mapping):
        document = plain(manifest)
    elif (name := os.fspath(manifest)) == STANDARD_INPUT:
        raise ManifestError(
            [Problem("manifest", name, "allowed: a file, a dict, or the name of an example or a preset")]
        )
    else:
        folder = manifest_file(user_path(name)).parent
        document = read_document(user_path(name))
    return written_job(as_found(document, overrides, folder)), folder


def _at_least_one(name: str, value: float) -> float:
    whole = name == "--max-actors"
    if not value >= 1 or (whole and value % 1):
        allowed = "a whole number from 1 upwards" if whole else "1 or more"
        raise UsageError(f"{name.removeprefix('--').replace('-', '_')} is {value}; allowed: {allowed}")
    return int(value) if whole else float(value)


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

"""`rljob run` of an experiment: its runs on this machine, a line a decision, and a table at the end."""

import math
import shlex
import time
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rljob.api import ManifestError, parse_job
from rljob.api.experiment_check import parse_experiment
from rljob.api.problems import Problem
from rljob.sources import keep_sources, to_load, with_files

from rljob_operator.experiments.decide import require_sampler
from rljob_operator.experiments.driver import Driver
from rljob_operator.experiments.journal import Entry
from rljob_operator.experiments.summary import best_of, in_words, rows
from rljob_operator.local import run_folder
from rljob_operator.local.experiment_runs import ExperimentFolder, Runs, doing
from rljob_operator.local.loop import Interrupt, raise_when_asked_to_end
from rljob_operator.local.run_folder import EXPERIMENT_FILE, OUTCOME_FILE, ControllerLock, RunFolderProblem
from rljob_operator.view.job_view import aligned
from rljob_operator.view.live import say

_TURN_SECONDS = 0.25
_WORDS_SECONDS = 60.0
"""Without a decision or an observation for so long, it is said what the runs do."""


def start(
    written: dict[str, Any],
    folder: Path | None,
    *,
    resume: bool,
    max_seconds: float | None,
    max_actors: int | None,
    console: Console,
) -> int:
    """Run the experiment ``written`` in ``folder`` (None: a new one named after it and the time), or with ``resume`` go on there.

    The exit code: 0 it has ended with a best trial, or ``max_seconds`` are over; 1 it failed; 130 interrupted. Raises as
    `rljob_operator.verbs.run.start`: the first trial is looked at as a run would, before anything has been started.
    """
    from rljob_operator.local import preflight  # the environment, which a base install lacks

    raise_when_asked_to_end()
    if resume and folder is not None:
        if not (folder / EXPERIMENT_FILE).is_file():
            raise RunFolderProblem(
                f"{folder}: nothing to resume here (no {EXPERIMENT_FILE}); leave out --resume to start one"
            )
        written = with_files(written, partial(to_load, run_dir=folder))
    experiment = parse_experiment(written)
    if experiment.spec.suspend:
        words = "allowed with rljob run: false; `rljob stop FOLDER` ends its runs in good order, and --resume goes on"
        raise ManifestError([Problem("spec.suspend", True, words)])
    require_sampler(experiment)
    if not resume and folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunFolderProblem(f"{folder}: not empty; add --resume to go on with it, or name another --run-dir")
    _, files = preflight.check(parse_job(experiment.manifest(0, 1, experiment.raw_frames)))
    folder = folder or run_folder.new_run_dir(experiment.name)
    with run_folder.telling(folder, then="; name another --run-dir"):
        folder.mkdir(parents=True, exist_ok=True)
    with ControllerLock(folder):
        opened = ExperimentFolder(folder)
        try:
            opened.take(experiment.document)
            say(console, f"experiment folder: {folder}")
            for note in keep_sources(folder, files):
                say(console, note)
            say(console, f"{experiment.in_words}; `rljob get {shlex.quote(str(folder))}` shows its runs")
            return _Session(opened, Runs(folder, opened.state.known, max_actors), console).run(max_seconds)
        finally:
            opened.close()


class _Session:
    """One controller of the experiment, from its start to its end."""

    def __init__(self, opened: ExperimentFolder, runs: Runs, console: Console) -> None:
        self._opened, self._runs, self._console = opened, runs, console
        self._driver, self._state = Driver(opened, runs), opened.state
        self._started = time.monotonic()
        self._next_words = time.monotonic() + _WORDS_SECONDS

    def run(self, max_seconds: float | None) -> int:
        """Until its end, or that of the session; the exit code."""
        interrupt = Interrupt()
        interrupt.install()
        stopped, longest = False, math.inf if max_seconds is None else max_seconds
        try:
            while not stopped:
                self._opened.at_work(time.monotonic())
                self._driver.turn()
                self._tell(self._opened.store())
                self._runs.lead(self._driver)
                if self._driver.judged and not self._runs.left:
                    return self._finish()
                interrupt.wait(_TURN_SECONDS)
                stopped = interrupt.requested or time.monotonic() - self._started >= longest
            self._runs.end()
            if left := self._runs.left:
                say(self._console, f"ending in good order: {', '.join(left)}")
            while self._runs.left:
                time.sleep(0.1)
        except KeyboardInterrupt:
            self._runs.end(at_once=True)
        finally:
            self._runs.end()
        command = ["rljob", "run", str(self._opened.folder / EXPERIMENT_FILE), "--run-dir", str(self._opened.folder)]
        say(self._console, f"resume: {shlex.join(command)} --resume")
        return 130 if interrupt.requested else 0

    def _tell(self, entries: list[Entry]) -> None:
        """Say what was decided and seen; where that is nothing for long, what the runs do."""
        said = [in_words(self._state, entry) for entry in entries]
        if not said and time.monotonic() >= self._next_words:
            said = [f"trial {run.trial} {doing(self._state, run, self._opened.folder)}" for run in self._state.active]
        if said:
            self._next_words = time.monotonic() + _WORDS_SECONDS
        for words in said:
            minutes, seconds = divmod(int(self._opened.seconds), 60)
            say(self._console, f"{minutes:4}:{seconds:02}  {words}")

    def _finish(self) -> int:
        state, end, folder = self._state, self._state.end, self._opened.folder
        assert end is not None
        best, told = (
            end["best"],
            [f"failed: {self._runs.folder(run)}: {run.why}" for run in state.runs.values() if run.why],
        )
        if best is not None:
            best = self._best(best)
            take = (
                f"; take it: rljob export {shlex.quote(best['runs'][0])} --format policy -o FOLDER"
                if best["runs"]
                else ""
            )
            told.append(f"best: {best['words']}{take}")
        document = {
            "state": "Failed" if state.has_failed else "Complete",
            "reason": end["reason"],
            "seconds": round(self._opened.seconds, 1),
            "best": best,
            "trials": rows(state),
        }
        run_folder.write_json(folder / OUTCOME_FILE, document, essential=False)
        from rljob_operator.verbs.experiment_page import write_experiment_report  # of use at the end alone

        try:
            told.append(f"report: {write_experiment_report(folder)}")
        except OSError as error:
            told.append(f"warning: the report can't be written: {error.strerror}")
        seconds = f"{self._opened.seconds:.0f} s"
        told.append(f"{document['state']} ({end['reason']}) after {seconds}; {folder / OUTCOME_FILE}")
        header = ("TRIAL", "MEAN", "RAW FRAMES", "NEWEST", "SEEDS", "STATE", "SETTINGS")
        for line in (*aligned([header, *map(_cells, document["trials"])], between="  "), *told):
            say(self._console, line)
        return 1 if state.has_failed else 0

    def _best(self, chosen: dict[str, Any]) -> dict[str, Any]:
        """The best trial as `outcome.json` has it: as it was ``chosen``, and on fresh games where they were played."""
        found, words = best_of(self._state, self._opened.folder) or (None, "")
        why = f"trial {chosen['trial']}, without a score on fresh games: {'; '.join(self._driver.unjudged.values())}"
        runs = found.runs if found is not None else map(self._runs.folder, self._state.best())
        return {
            "trial": chosen["trial"],
            "set": chosen["set"],
            "mean": found.mean if found is not None else None,
            "standardError": found.standard_error if found is not None else None,
            "runs": [str(run) for run in runs if Path(run).is_dir()],
            "chosenByMean": chosen["mean"],
            "chosenByStandardError": chosen["standardError"],
            "words": words or why,
            **({"schedule": found.schedule} if found is not None and found.schedule else {}),
        }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    judged, frames = row["mean"] is not None, f"{row['rawFrames']:,}"
    mean = f"{row['mean']:.2f} +- {row['standardError']:.2f}" if judged else "-"
    newest = f"{row['newestMean']:.2f}" if judged else "-"
    return str(row["trial"]), mean, frames, newest, str(row["seeds"]), row["state"], row["set"]

"""The runs of an experiment on this machine: a controller's process for each that plays, `rljob eval` for each that is judged."""

import contextlib
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from rljob.api import ManifestError, RLJob, parse_job, read_manifest
from rljob.api.exit_codes import EXIT_INVALID
from rljob.api.experiment_trials import Experiment
from rljob.api.live import as_begun
from rljob.api.status import RLJobStatus
from rljob.child import Child
from rljob.sources import without_places

from rljob_operator.experiments.driver import Driver, Sight, brought, is_saved, judging, refusal, scored
from rljob_operator.experiments.state import Run
from rljob_operator.local.experiment_folder import judgement
from rljob_operator.local.log_files import tail
from rljob_operator.local.run_folder import JOB_FILE, OUTCOME_FILE, STATUS_FILE, RunFolderProblem, holder, read_json
from rljob_operator.local.spec_store import SpecStore

CONTROLLER: Final = "rljob_operator.verbs.run_experiment"
"""The module of a run's controller."""
_MOST_STARTS: Final = 3
"""Starts of a run's controller in one session without a result, before the run counts as failed."""


class Runs:
    """All runs of the experiment in ``folder``: the `RunsPlace` that has them in folders."""

    def __init__(self, folder: Path, experiment: Experiment, max_actors: int | None) -> None:
        self._folder, self._experiment, self._max_actors = folder, experiment, max_actors
        self._playing: dict[Path, Child] = {}
        self._judging: dict[tuple[Path, int], Child] = {}
        self._starts = Counter[tuple[Path, int]]()
        self._asked: dict[Path, dict[str, str]] = {}
        self._brought: dict[Path, tuple[int | None, dict[str, Any]]] = {}
        self._unfit: dict[Path, str] = {}
        (folder / "logs").mkdir(exist_ok=True)

    def folder(self, run: Run) -> Path:
        """The run folder of a run."""
        return self._folder / self._experiment.run_name(run.trial, run.seed)

    def sight(self, run: Run) -> Sight:
        """See `RunsPlace`. One whose controller ends again and again without a result has failed."""
        folder, outcome = self.folder(run), {}
        status = RLJobStatus.model_validate(read_json(folder / STATUS_FILE), by_alias=True, by_name=False)
        if self._is_held(folder):
            frames, asked = self._experiment.rungs[run.rung], self._asked.get(folder, {})
            reached = self._experiment.plays_through and status.progress.raw_frames >= frames
            saved, refused = is_saved(run, asked, status), refusal(run, status, ended=False)
            return Sight(False, reached, saved, refused, why=self._unfit.get(folder, ""))
        playing, goal, job = self._playing.get(folder), parse_job(self._wanted(run)).spec, self._job(run)
        if job is not None and (outcome := read_json(folder / OUTCOME_FILE)):
            begun, now = (
                without_places(as_begun(spec.model_dump(by_alias=True), "successPolicy", "fork"))
                for spec in (job.spec, goal)
            )
            if begun != now:
                return Sight(True, why=f"{folder / JOB_FILE} was changed by hand, so that it is another trial")
            outcome = outcome if goal.success_policy == job.spec.success_policy else {}  # else of the rung before
        if outcome.get("state") == "Failed":
            return Sight(True, why=f"{outcome.get('reason')}: {outcome.get('message')}")
        if outcome.get("state") == "Complete":
            refused = refusal(run, status, ended=True)
            return Sight(True, reached=True, reason=str(outcome.get("reason")), refused=refused)
        log, ended_with = self._log(folder), playing.returncode if playing is not None else None
        if ended_with == EXIT_INVALID:
            return Sight(True, why=" ".join(line.removeprefix("rljob: ") for line in tail(log, 1)))
        given_up = playing is not None and self._starts[folder, run.rung] >= _MOST_STARTS
        return Sight(
            rests=True,
            why=f"its controller has ended {_MOST_STARTS} times (last with {ended_with}); see {log}"
            if given_up
            else "",
        )

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
                        "rljob_operator.cli", words, title=title, orphaned=end, stdout=out, stderr=err
                    )
            return None
        if process.poll() is None:
            return None
        del self._judging[folder, rung]
        said = " ".join(tail(errors, 1)) or f"rljob eval ended with {process.returncode}"
        frames = (read_json(folder / STATUS_FILE).get("progress") or {}).get("rawFrames", 0)
        return scored(read_json(output) if process.returncode == 0 else {}, frames, said)

    def lead(self, driver: Driver) -> None:
        """Start what is to play, and at the end of the experiment ask all to end in good order. At its rung a run ends by
        itself."""
        for run in driver.journal.state.active:
            folder = self.folder(run)
            if driver.plays(run) and not self._is_held(folder):
                order, title = (folder, self._wanted(run), self._max_actors), f"rljob run {folder}"
                with self._log(folder).open("ab") as log:
                    self._playing[folder] = Child(CONTROLLER, *order, title=title, stdout=log, stderr=subprocess.STDOUT)
                self._starts[folder, run.rung] += 1
                self._brought[folder] = None, run.overrides
            elif self._experiment.plays_through and (folder / JOB_FILE).is_file() and driver.plays(run):
                self._bring(folder, run, driver)
        for playing in self._playing.values() if driver.journal.state.end is not None else ():
            playing.leave()

    def _bring(self, folder: Path, run: Run, driver: Driver) -> None:
        """Have a member that plays follow its settings and its fork, and save itself where it is to be judged."""

        def change(document: dict[str, Any]) -> None:
            document.update(driver.wanted(run, document, time.time()))
            self._asked[folder] = document["metadata"].get("annotations") or {}

        due = run.rung if driver.sight(run).reached else None, run.overrides
        if self._brought.get(folder) != due:
            self._brought[folder] = due
            try:
                SpecStore(folder).edit(change)
            except (ManifestError, RunFolderProblem) as problem:  # its job.yaml was changed by hand
                self._unfit[folder] = f"it can't follow: {problem}"
                if (playing := self._playing.get(folder)) is not None:
                    playing.leave()

    def end(self, *, at_once: bool = False) -> None:
        """Ask everything to end: runs in good order, which can be resumed, unless ``at_once``; judgements at once."""
        for playing in self._playing.values():
            playing.leave()
            if at_once:
                playing.terminate()  # the second request
        for process in self._judging.values():
            process.leave()
            process.wait()
        self._judging.clear()

    @property
    def left(self) -> list[str]:
        """Runs whose controllers have not ended yet."""
        return [folder.name for folder, playing in self._playing.items() if playing.poll() is None]

    def _is_held(self, folder: Path) -> bool:
        """Whether a controller has the run: one of this session, or one of a session before, which is ending."""
        playing = self._playing.get(folder)
        return (playing is not None and playing.poll() is None) or holder(folder) is not None

    def _wanted(self, run: Run) -> dict[str, Any]:
        frames = self._experiment.rungs[-1 if self._experiment.plays_through else run.rung]
        return self._experiment.manifest(run.trial, run.seed, frames, run.overrides or None)

    def _log(self, folder: Path) -> Path:
        return self._folder / "logs" / f"{folder.name}.log"

    def _job(self, run: Run) -> RLJob | None:
        """What is stored of a run; of a member of a population as it is to go on."""
        with contextlib.suppress(ManifestError):
            return parse_job(brought(read_manifest(self.folder(run) / JOB_FILE), self._experiment, run))
        return None

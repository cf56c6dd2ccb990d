"""The runs of an experiment on this machine: a controller's process for each that plays, `rljob eval` for each that is judged."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

from rljob.api import ManifestError, RLJob, parse_job, read_manifest
from rljob.api.exit_codes import EXIT_INVALID
from rljob.api.experiment_trials import Experiment
from rljob.api.learned import as_begun
from rljob.child import Child
from rljob.sources import without_places

from rljob_operator.experiments.journal import Entry
from rljob_operator.experiments.state import Run, judging, scored, seen
from rljob_operator.local.experiment_folder import judgement
from rljob_operator.local.holder import holder
from rljob_operator.local.log_files import tail
from rljob_operator.local.run_folder import JOB_FILE, OUTCOME_FILE, STATUS_FILE, read_json

CONTROLLER: Final = "rljob_operator.verbs.experiment_run"
"""The module of a run's controller."""
_MOST_STARTS: Final = 3
"""Starts of a run's controller in one session without a result, before the run counts as failed."""


class Runs:
    """All runs of the experiment in ``folder``. What is wanted is asked for again and again: `play` and `judge` do nothing where
    it is under way."""

    def __init__(self, folder: Path, experiment: Experiment, max_actors: int | None) -> None:
        self._folder, self._experiment, self._max_actors = folder, experiment, max_actors
        self._playing: dict[Path, Child] = {}
        self._judging: dict[tuple[Path, int], Child] = {}
        self._starts: dict[tuple[Path, int], int] = {}
        (folder / "logs").mkdir(exist_ok=True)

    def folder(self, run: Run) -> Path:
        """The run folder of a run."""
        return self._folder / self._experiment.run_name(run.trial, run.seed)

    def look(self, run: Run) -> Entry | None:
        """What has become of a run that should play to its rung: its score or its failure; None while it plays or is judged.
        Starts what is missing for that."""
        frames, folder = self._experiment.rungs[run.rung], self.folder(run)
        playing = self._playing.get(folder)
        if playing is not None and playing.poll() is None:
            return None
        self._playing.pop(folder, None)
        about = {"trial": run.trial, "seed": run.seed}
        try:
            wanted = self._experiment.manifest(run.trial, run.seed, frames)
        except ManifestError as error:  # an older journal may have suggestions that are not allowed together
            return {"kind": "Fail", **about, "why": str(error)[:500]}
        ended = self._ended(folder, wanted)
        if ended == "edited":
            return {
                "kind": "Fail",
                **about,
                "why": f"{folder / JOB_FILE} was changed by hand, so that it is another trial",
            }
        if ended in ("Complete", "Failed"):
            outcome = read_json(folder / OUTCOME_FILE)
            if ended == "Failed":
                return {"kind": "Fail", **about, "why": f"{outcome.get('reason')}: {outcome.get('message')}"[:500]}
            return seen(run, self.judged(run, run.rung), str(outcome.get("reason")))
        why = self._given_up(folder, run.rung, playing.returncode if playing is not None else None)
        if why:
            return {"kind": "Fail", **about, "why": why}
        self._play(folder, wanted)
        return None

    def judged(self, run: Run, rung: int) -> dict[str, Any] | None:
        """How its newest weights (its best, with an evaluator; at the end those that were kept) are judged by the games of
        ``rung``; None while they are. What is wrong stands in ``why``."""
        folder = self.folder(run)
        output = judgement(self._folder, folder.name, rung)
        errors = output.with_suffix(".error")
        if (folder, rung) not in self._judging:
            words = ["eval", str(folder), *judging(self._experiment, run, rung), "--json"]
            title, end = f"rljob eval {folder}", signal.SIGKILL
            with output.open("wb") as out, errors.open("wb") as err:
                self._judging[folder, rung] = Child(
                    "rljob_operator.cli", words, title=title, orphaned=end, stdout=out, stderr=err
                )
        process = self._judging[folder, rung]
        if process.poll() is None:
            return None
        del self._judging[folder, rung]
        said = " ".join(tail(errors, 1)) or f"rljob eval ended with {process.returncode}"
        frames = (read_json(folder / STATUS_FILE).get("progress") or {}).get("rawFrames", 0)
        return scored(read_json(output) if process.returncode == 0 else {}, frames, said)

    def end_plays(self) -> None:
        """Ask runs to end in good order."""
        for playing in self._playing.values():
            playing.leave()

    def end(self, *, at_once: bool = False) -> None:
        """Ask everything to end: runs in good order, which can be resumed, unless ``at_once``; judgements at once."""
        self.end_plays()
        for playing in self._playing.values() if at_once else ():
            playing.terminate()  # the second request
        for process in self._judging.values():
            process.leave()
            process.wait()
        self._judging.clear()

    @property
    def left(self) -> list[str]:
        """Runs whose controllers have not ended yet."""
        return [folder.name for folder, playing in self._playing.items() if playing.poll() is None]

    def _play(self, folder: Path, wanted: dict[str, Any]) -> None:
        order, title = (folder, wanted, self._max_actors), f"rljob run {folder}"
        with (self._folder / "logs" / f"{folder.name}.log").open("ab") as log:
            self._playing[folder] = Child(CONTROLLER, *order, title=title, stdout=log, stderr=subprocess.STDOUT)

    def _ended(self, folder: Path, wanted: dict[str, Any]) -> str:
        """How the run in ``folder`` has ended as it is wanted: Complete or Failed; "edited" where it was another one; empty where
        it has not."""
        state = str(read_json(folder / OUTCOME_FILE).get("state", ""))
        job = self._job(folder)
        if not state or job is None or holder(folder) is not None:
            return ""
        goal, ours = parse_job(wanted).spec, job.spec
        begun, now = (
            without_places(as_begun(spec.model_dump(by_alias=True), "successPolicy")) for spec in (ours, goal)
        )
        if begun != now:
            return "edited"
        return state if goal.success_policy == ours.success_policy else ""

    def _job(self, folder: Path) -> RLJob | None:
        with contextlib.suppress(ManifestError):
            return parse_job(read_manifest(folder / JOB_FILE))
        return None

    def _given_up(self, folder: Path, rung: int, ended_with: int | None) -> str:
        """Why a run whose controller has ended without a result is not started again; empty where it is."""
        log = self._folder / "logs" / f"{folder.name}.log"
        starts = self._starts.setdefault((folder, rung), 0) + 1
        self._starts[folder, rung] = starts
        if ended_with == EXIT_INVALID:
            return " ".join(line.removeprefix("rljob: ") for line in tail(log, 1))
        if starts > _MOST_STARTS:
            return f"its controller has ended {_MOST_STARTS} times (last with {ended_with}); see {log}"
        return ""

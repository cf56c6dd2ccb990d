"""The runs of an experiment on this machine: a controller's process for each that plays, `rljob eval` for each that is judged."""

import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from rljob.api import ManifestError, parse_job
from rljob.api.exit_codes import EXIT_INVALID
from rljob.api.experiment_trials import Experiment
from rljob.api.status import RLJobStatus
from rljob.child import Child

from rljob_operator.experiments.driver import Driver, Sight, judging, scored
from rljob_operator.experiments.state import Run
from rljob_operator.local.experiment_folder import judgement
from rljob_operator.local.log_files import tail
from rljob_operator.local.run_folder import JOB_FILE, OUTCOME_FILE, STATUS_FILE, RunFolderProblem, holder, read_json
from rljob_operator.local.spec_store import SpecStore, StoredJob, replace_spec

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
            parse_job(wanted := self._wanted(run))
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

    def _wanted(self, run: Run) -> dict[str, Any]:
        return self._experiment.manifest(*run.key, self.frames(run), run.overrides or None)

    def _stored(self, folder: Path) -> StoredJob | None:
        """What is stored of a run; None where its folder is not there."""
        with suppress(RunFolderProblem):
            return self._stores.setdefault(folder, SpecStore(folder)).read()
        self._stores.pop(folder)
        return None

    def _log(self, folder: Path) -> Path:
        return self._folder / "logs" / f"{folder.name}.log"

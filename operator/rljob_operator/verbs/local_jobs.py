"""Runs on this machine as the verbs' jobs: each is a folder."""

import asyncio
import shlex
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from rljob.checkpoints.files import directory_in
from rljob.checkpoints.names import CheckpointProblem, StorageProblem
from rljob.checkpoints.send import policy_files, send
from rljob.errors import UsageError

from rljob_operator.core.member import Role
from rljob_operator.experiments.state import ExperimentState
from rljob_operator.local.experiment_runs import look_at_experiment, read_experiment
from rljob_operator.local.job_view import look, metrics_urls, running_members
from rljob_operator.local.log_files import LogFollower
from rljob_operator.local.run_folder import EXPERIMENT_FILE, RUNS, chosen_run, holder, newest, stored_runs
from rljob_operator.local.spec_store import SpecStore
from rljob_operator.polls.reach import Direct, Reach
from rljob_operator.verbs.jobs import POLL_SECONDS, Listing, NotReached, ShowLines, no_log
from rljob_operator.view.job_view import JobView

T = TypeVar("T")
_ASKED_SECONDS = 5.0


class LocalJobs:
    """The runs that are named by their folders; without a name the newest under ``runs/``. `get` also shows an experiment's."""

    def chosen(self, name: str | None, *, or_experiment: bool = False) -> "LocalJob":
        """See `Jobs`."""
        folder = Path(name) if name is not None else newest()
        is_experiment = (folder / EXPERIMENT_FILE).is_file()
        return LocalJob(folder if or_experiment and is_experiment else chosen_run(folder))

    def shown(self, name: str | None, everything: bool, *, figures: bool) -> Listing:
        """See `Jobs`."""
        folder = Path(name) if name is not None else RUNS if everything else newest()
        if not everything and not (folder / EXPERIMENT_FILE).is_file():
            return Listing([self.chosen(str(folder)).look(figures=figures)], is_list=False)
        runs = stored_runs(folder)
        if not runs:
            raise UsageError(f"no run under {folder}/; `rljob run FILE` starts one")
        return Listing([look(run, figures=figures) for run in runs], is_list=True)

    def splits(self, word: str) -> bool:
        """See `Jobs`: a role's name, and no folder has it."""
        return not Path(word).exists() and word.partition("-")[0] in set(Role)


class LocalJob:
    """The run in ``folder``."""

    pause_seconds = POLL_SECONDS

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def place(self) -> str:
        """See `Job`."""
        return str(self._folder)

    def command(self, verb: str) -> str:
        """See `Job`."""
        return f"rljob {verb} {shlex.quote(self.place)}"

    def look(self, *, figures: bool = True) -> JobView:
        """See `Job`."""
        if (self._folder / EXPERIMENT_FILE).is_file():
            return look_at_experiment(self._folder)
        return look(self._folder, figures=figures)

    def change(self, patch: Mapping[str, Any]) -> int:
        """See `Job`."""
        return SpecStore(self._folder).edit(lambda document: merge(document, patch))

    def stop(self, say: Callable[[str], None], timeout_seconds: float) -> None:
        """See `Job`: asks its controller, and waits for its end. Without a controller, its processes are ending by themselves."""
        controller = holder(self._folder)
        if controller is None:
            running = ", ".join(running_members(self._folder))
            say(f"{self.place}: {f'its controller has ended, and so do {running}' if running else 'nothing runs'}")
            return
        if controller.process is None or not controller.here:
            raise NotReached(
                f"{self.place}: its controller is {controller}, which gets no signal from here; `rljob stop` there ends it, and "
                f"`{self.command('suspend')}` pauses it from here"
            )
        controller.process.send(signal.SIGTERM)
        say(f"{self.place}: its controller ({controller}) was asked to end the run")
        deadline = time.monotonic() + timeout_seconds
        while holder(self._folder) == controller:
            if time.monotonic() >= deadline:
                raise NotReached(
                    f"the controller ({controller}) has not ended within {timeout_seconds:g} s; see {self.place}/logs"
                )
            time.sleep(POLL_SECONDS)
        say(f"{self.place}: stopped")

    def logs(self, who: str | None, *, tail: int, follow: bool, show: ShowLines) -> None:
        """See `Job`. A member's file holds all its lives."""
        followers: dict[str, LogFollower] = {}
        while True:
            for name in self._names(who):  # actors may come later
                followers.setdefault(name, LogFollower(self._folder / "logs" / f"{name}.log", tail))
            show(
                tuple(followers),
                ((name, line) for name, follower in followers.items() for line in follower.new_lines()),
            )
            if not follow:
                return
            time.sleep(POLL_SECONDS)

    def policy(self, out: BinaryIO, say: Callable[[str], None], timeout_seconds: float) -> None:
        """See `Job`."""
        found = directory_in(self._folder)
        if not isinstance(found, Path):
            raise UsageError(f"{self.place}: its checkpoints are in {found}; `rljob eval {found}` reads them there")
        try:
            send(policy_files(found), out)
        except (CheckpointProblem, StorageProblem) as problem:
            raise UsageError(str(problem)) from None

    def experiment(self) -> ExperimentState:
        """See `Job`."""
        return read_experiment(self._folder)

    def _names(self, who: str | None) -> list[str]:
        """Members with a log that ``who`` means. Raises UsageError."""
        known = sorted(path.stem for path in (self._folder / "logs").glob("*.log"))
        if not known:
            raise UsageError(f"{self.place}: no logs yet; nothing has been started")
        chosen = [name for name in known if who in (None, name, name.partition("-")[0])]
        if not chosen:
            running = running_members(self._folder)
            raise no_log(str(who), self.place, [f"{name}{'' if name in running else ' (ended)'}" for name in known])
        return chosen

    def ask(self, work: Callable[[Reach, Mapping[str, str]], Coroutine[Any, Any, T]]) -> T:
        """See `Job`: at the addresses that they have announced."""
        return asyncio.run(work(Direct(_ASKED_SECONDS), metrics_urls(self._folder, running_members(self._folder))))


def merge(document: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Change ``document`` as a JSON merge patch says; null takes a field away, and makes no map to take it from."""
    for name, value in patch.items():
        if value is None:
            document.pop(name, None)
        elif isinstance(value, Mapping):
            below = document.get(name)
            below = below if isinstance(below, dict) else {}
            merge(below, value)
            if below or name in document:
                document[name] = below
        else:
            document[name] = value

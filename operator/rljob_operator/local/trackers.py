"""The trackers of a run on one machine: processes beside the roles, of which nothing else depends.

One that ends is started again after a growing wait, one that is silent is killed first; what that means for the run is a line.
"""

import contextlib
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rljob.api.job import TrackingSpec
from rljob.child import Child
from rljob.tracking.tracker import FOLDER, HUNG_SECONDS, TRACKERS, trackers_of

from rljob_operator.local.log_files import tail
from rljob_operator.local.run_folder import read_json

FIRST_WAIT_SECONDS: Final = 2.0
LONGEST_WAIT_SECONDS: Final = 30.0
LAST_SECONDS: Final = 15.0
"""How long the end of a run waits for the last points."""


class Trackers:
    """Starts the trackers of the run in ``run_dir``, watches them whenever `look` is called, and ends them.

    Args:
        options: more words for each tracker's command line.
        say: is given a line whenever one begins to fail, and when it is well again.
    """

    def __init__(self, run_dir: Path, say: Callable[[str], None], options: Sequence[str] = ()) -> None:
        self._each: list[_Process] = []
        self._tracking: TrackingSpec | None = None
        self._run_dir = run_dir
        self._say = say
        self._options = options

    def look(self, tracking: TrackingSpec | None) -> bool:
        """Start what is due of what the job wants now, and tell what is new; whether any is not done. Returns at once."""
        if tracking != self._tracking:
            for each in self._each:
                each.ask_to_end()
            self._each = [_Process(self._run_dir, name, self._options) for name in trackers_of(tracking)]
            self._tracking = tracking
        for each in self._each:
            each.look()
            if bool(each.problem) != bool(each.told):
                name = TRACKERS[each.name]
                failing = f"{name}: {each.problem}; points are kept in the run folder and sent when it works"
                self._say(failing if each.problem else f"{name} takes points again")
                each.told = each.problem
        return any(not each.done for each in self._each)

    def untracked(self) -> dict[str, str] | None:
        """Trackers that take no points -> why; None before it is known of each, and where there are none."""
        if not self._each or any(each.problem is None for each in self._each):
            return None
        return {TRACKERS[each.name]: each.problem for each in self._each if each.problem}

    def close(self, seconds: float = LAST_SECONDS) -> dict[str, str]:
        """Have them send the rest, and end those that take longer than ``seconds``; those that have not got everything are told,
        and answered with what sends them the rest."""
        left: dict[str, str] = {}
        for each in self._each:
            each.ask_to_end()
        deadline = time.monotonic() + seconds
        for each in self._each:
            if not each.ended_by(deadline):
                again = f"rljob track {shlex.quote(str(self._run_dir))}"
                left[TRACKERS[each.name]] = f"it lacks some points; send them with: {again}"
                self._say(f"{TRACKERS[each.name]} lacks some points; send them with: {again}")
            elif url := each.state().get("url"):
                self._say(f"{TRACKERS[each.name]}: {url}")
        return left


class _Process:
    def __init__(self, run_dir: Path, name: str, options: Sequence[str]) -> None:
        self.name = name
        self.problem: str | None = None
        self.told: str | None = None
        self._run_dir = run_dir
        self._options = options
        self._log = run_dir / "logs" / f"tracker-{name}.log"
        self._process: Child | None = None
        self._due = self._begun = 0.0
        self._wait_seconds = FIRST_WAIT_SECONDS

    @property
    def done(self) -> bool:
        """Whether it has sent everything and ended."""
        return self._process is not None and self._process.poll() == 0

    def look(self) -> None:
        now = time.monotonic()
        if self._process is None:
            if now >= self._due:
                self._start(now)
            return
        if self.done:
            return
        if (code := self._process.poll()) is not None:
            self.problem = "".join(tail(self._log, 1)).removeprefix("rljob: ") or f"its tracker ended with {code}"
            self._again(now)
            return
        state = self.state()
        ours = state.get("pid") == self._process.pid
        if ours and not state.get("problem"):
            self._wait_seconds = FIRST_WAIT_SECONDS
        if ours:
            self.problem = str(state.get("problem", ""))
        heard = now - self._begun if not ours else time.time() - float(state.get("time_unix", 0.0))
        if min(heard, now - self._begun) > HUNG_SECONDS:
            self.problem = f"its tracker was silent for {HUNG_SECONDS:.0f} s"
            self._process.kill()
            self._again(now)

    def state(self) -> dict[str, Any]:
        return read_json(self._run_dir / FOLDER / f"{self.name}.json")

    def ask_to_end(self) -> None:
        if self._process is not None:
            self._process.leave()

    def ended_by(self, deadline: float) -> bool:
        """Whether it ended in good order until ``deadline`` (monotonic seconds); else it is killed."""
        if self._process is None:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(max(0.0, deadline - time.monotonic())) == 0
        self._process.kill()
        self._process.wait()
        return False

    def _start(self, now: float) -> None:
        words = [str(self._run_dir), self.name, *self._options]
        few = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        try:
            with self._log.open("ab") as log:
                self._process = Child("rljob.tracking.sender", words, variables=few, stdout=log, stderr=log)
        except OSError as error:
            self.problem = f"its tracker can't be started: {error.strerror}"
            self._again(now)
        self._begun = now

    def _again(self, now: float) -> None:
        if self._process is not None:
            self.ask_to_end()
        self._process = None
        self._due = now + self._wait_seconds
        self._wait_seconds = min(LONGEST_WAIT_SECONDS, 2 * self._wait_seconds)

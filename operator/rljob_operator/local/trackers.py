"""The trackers of a run on one machine: processes beside the roles, of which nothing else depends.

One that ends is started again after a while; what that means for the run is a line.
"""

import contextlib
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rljob.api.job import TrackingSpec
from rljob.child import Child
from rljob.tracking.tracker import FOLDER, HUNG_SECONDS, IDENTITY_VARIABLE, TRACKERS, state_in, trackers_of

from rljob_operator.local.log_files import tail

AGAIN_SECONDS: Final = 5.0
LAST_SECONDS: Final = 15.0
"""How long the end of a run waits for the last points."""


class Trackers:
    """Starts the trackers of the run in ``run_dir``, watches them whenever `look` is called, and ends them.

    Args:
        options: more words for each tracker's command line.
        say: is given a line whenever one begins to fail, and when it is well again.
    """

    def __init__(self, run_dir: Path, say: Callable[[str], None], options: Sequence[str] = ()) -> None:
        self._run_dir, self._say, self._options = run_dir, say, options
        self._each: list[_Process] = []
        self._tracking: TrackingSpec | None = None

    def look(self, tracking: TrackingSpec | None) -> bool:
        """Start what is due of what the job wants now, and tell what is new; whether any is not done. Returns at once."""
        if tracking != self._tracking:
            for each in self._each:
                each.ask_to_end()
            self._each = [_Process(self._run_dir, name, self._options) for name in trackers_of(tracking)]
            self._tracking = tracking
        for each in self._each:
            before = each.problem
            each.look()
            if each.problem and not before:
                self._say(f"{each.called}: {each.problem}; points are kept in the run folder and sent when it works")
            elif before and not each.problem:
                self._say(f"{each.called} takes points again")
        return any(not each.done for each in self._each)

    def untracked(self) -> dict[str, str] | None:
        """Trackers that take no points -> why; None before it is known of each, and where there are none."""
        if not self._each or any(each.problem is None for each in self._each):
            return None
        return {each.called: each.problem for each in self._each if each.problem}

    def close(self, seconds: float = LAST_SECONDS) -> dict[str, str]:
        """Have them send the rest, and end those that take longer than ``seconds``; those that have not got everything are told,
        and answered with what sends them the rest."""
        left: dict[str, str] = {}
        for each in self._each:
            each.ask_to_end()
        deadline = time.monotonic() + seconds
        for each in self._each:
            if not each.ended_by(deadline):
                lacks = f"lacks some points; send them with: rljob track {shlex.quote(str(self._run_dir))}"
                left[each.called] = f"it {lacks}"
                self._say(f"{each.called} {lacks}")
            elif url := each.state.get("url"):
                self._say(f"{each.called}: {url}")
        return left


class _Process:
    """``problem``: why it takes no points; empty where it does, None before that is known."""

    def __init__(self, run_dir: Path, name: str, options: Sequence[str]) -> None:
        self.called = TRACKERS[name]
        self.problem: str | None = None
        self._words = [str(run_dir), name, *options]
        self._folder, self._file = run_dir / FOLDER, run_dir / FOLDER / f"{name}.json"
        self._log = run_dir / "logs" / f"tracker-{name}.log"
        self._process: Child | None = None
        self._due = 0.0

    @property
    def done(self) -> bool:
        """Whether it has sent everything and ended."""
        return self._process is not None and self._process.poll() == 0

    @property
    def state(self) -> dict[str, Any]:
        return state_in(self._file)

    def look(self) -> None:
        if self._process is None:
            if time.monotonic() >= self._due:
                self._start()
        elif (code := self._process.poll()) is None:
            if (state := self.state).get("pid") == self._process.pid:
                self.problem = state["problem"]
        elif code:
            # What one that was killed has written last is not why it ended.
            said = "".join(tail(self._log, 1)).removeprefix("rljob: ") if code > 0 else ""
            if code == -signal.SIGALRM:
                said = f"its tracker was silent for {HUNG_SECONDS} s"
            self._failed(said or f"its tracker ended with {code}")

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

    def _start(self) -> None:
        try:
            few = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", IDENTITY_VARIABLE: identity(self._folder)}
            with self._log.open("ab") as log:
                self._process = Child("rljob.tracking.sender", self._words, variables=few, stdout=log, stderr=log)
        except OSError as error:
            self._failed(f"its tracker can't be started: {error.strerror}")

    def _failed(self, problem: str) -> None:
        self.ask_to_end()
        self.problem, self._process, self._due = problem, None, time.monotonic() + AGAIN_SECONDS


def identity(folder: Path) -> str:
    """What the run is found by at all trackers: made once, and kept in ``folder``. Raises OSError."""
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError), (folder / "run-id").open("x") as new:
        new.write(uuid.uuid4().hex)
    return (folder / "run-id").read_text()

"""What a running learner is asked to follow without a restart: live values, their schedule, and a fork (`rljob.api.live`)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from pydantic import ValidationError

from rljob.api.job import RLJobSpec
from rljob.api.learner_status import ForkStatement
from rljob.api.lifecycle import ForkSpec, ScheduledChange
from rljob.api.live import digest, live_values, wanted, with_live
from rljob.checkpoints.store import Checkpoint
from rljob.threads import start_contained

log = logging.getLogger(__name__)


_Asked: TypeAlias = tuple[str, Mapping[str, Any], Sequence[ScheduledChange], ForkSpec | None]
"""The digest of what is `wanted`, its live values, schedule, and fork."""


class Change(NamedTuple):
    """What the loop has to do now: learn by ``spec``, with the weights of ``found`` where there is one."""

    spec: RLJobSpec
    found: Checkpoint | None
    following: str
    scheduled: int


class Course:
    """Tells the loop what changes and when. `ask` and the public attributes are for any thread, all else is for the loop's.

    ``spec``: of the job as the learner was started. ``read``: reads the checkpoint of a fork, on a thread of its own; what it
    raises is why the fork is refused. Values that are asked for together with a fork take effect with it.
    """

    def __init__(self, spec: RLJobSpec, read: Callable[[ForkSpec], Checkpoint]) -> None:
        self._spec, self._read = spec, read
        self.following, self.scheduled = "", 0
        self.budget = spec.success_policy.raw_frames
        """After how many raw frames training ends; None where that is not said."""
        self.live = live_values(spec)
        """The live values by which the loop learns."""
        self.forked = ""
        """The id of the newest fork that was done."""
        self.fork: ForkStatement | None = None
        self._came: dict[str, Checkpoint | str | None] = {}  # None: it is being read
        self._asked = self._taken(wanted(spec))

    def ask(self, document: Mapping[str, Any]) -> None:
        """Follow what is `wanted` from now on; a checkpoint is read at once. Raises ValueError where the job can't."""
        _, _, _, fork = self._asked = self._taken(document)
        self.budget = document.get("rawFrames")
        if fork is not None and fork.id not in (self.forked, self.fork and self.fork.id):
            self._begin_to_read(fork)

    def with_live(self, values: Mapping[str, Any]) -> RLJobSpec:
        """The job with these live values, as another process of the learner follows them."""
        return with_live(self._spec, values)

    def _taken(self, document: Mapping[str, Any]) -> _Asked:
        try:
            fork, schedule = document["fork"], [ScheduledChange.model_validate(each) for each in document["schedule"]]
            taken = None if fork is None else ForkSpec.model_validate(fork)
            for values in (document["live"], *(each.set for each in schedule)):
                _ = with_live(self._spec, values).algorithm.parameters
        except (KeyError, TypeError, AttributeError, ValidationError) as error:
            raise ValueError(f"live, schedule and fork of this job are expected: {error}") from None
        return digest(document), dict(document["live"]), schedule, taken

    def resumed(self, forked: str) -> None:
        """The weights are those of a checkpoint that was written after the fork of that id; empty for none."""
        self.forked, self.following = forked, ""

    def turn(self, raw_frames: int, *, may_fork: bool) -> Change | None:
        """What is to change after so many raw frames; None where nothing is, or a checkpoint is still being read."""
        (following, live, schedule, fork), found = self._asked, None
        due = [each.set for each in schedule if each.after_raw_frames <= raw_frames]  # the later ones win
        if (following, len(due)) == (self.following, self.scheduled):
            return None
        if fork is None:
            self.fork = None
        elif fork.id == self.forked:
            if self.fork is None or self.fork.id != self.forked:
                self.fork = ForkStatement(id=self.forked, state="Done")
        elif self.fork is None or (self.fork.id, self.fork.state) != (fork.id, "Refused"):
            found = self._fetched(fork) if may_fork else None
            if found is None:
                return None
        values = {path: value for each in (live, *due) for path, value in each.items()}
        return Change(with_live(self._spec, values), found, following, len(due))

    def took(self, change: Change, updates: int, raw_frames: int) -> None:
        """The loop has done that, after so many updates of its own."""
        self.following, self.scheduled, self.live = change.following, change.scheduled, live_values(change.spec)
        if change.found is not None and self.fork is not None:
            self.forked, at = self.fork.id, {"updates": updates, "raw_frames": raw_frames}
            self.fork = ForkStatement(id=self.forked, state="Done", message=f"weights of {change.found.path}", **at)
        values = ", ".join(f"{path} {value:g}" for path, value in self.live.items())
        weights = f"; {self.fork.message}" if change.found is not None and self.fork is not None else ""
        log.info("from update %d on: %s; %d entries of the schedule%s", updates, values, self.scheduled, weights)

    def refuse(self, why: str) -> None:
        """The fork is not done, and not tried again by this learner; it goes on with its own weights."""
        assert self.fork is not None, "a fork is refused once it was begun"
        self.fork = ForkStatement(id=self.fork.id, state="Refused", message=why)
        log.warning("fork %s is refused: %s", self.fork.id, why)

    def _fetched(self, fork: ForkSpec) -> Checkpoint | None:
        """The checkpoint of a fork, once it is read; None before, and where it is refused."""
        self._begin_to_read(fork)
        self.fork = ForkStatement(id=fork.id, state="Waiting")
        came = self._came[fork.id]
        if came is not None:
            self._came.clear()
        if isinstance(came, str):
            self.refuse(came)
            return None
        return came

    def _begin_to_read(self, fork: ForkSpec) -> None:
        if fork.id not in self._came:
            self._came[fork.id] = None
            start_contained("fork", partial(self._fetch, fork))

    def _fetch(self, fork: ForkSpec) -> None:
        try:
            self._came[fork.id] = self._read(fork)
        except Exception as error:  # noqa: BLE001  whatever is wrong with another run's checkpoint, this one goes on
            self._came[fork.id] = str(error) or type(error).__name__

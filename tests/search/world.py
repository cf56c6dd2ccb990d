"""A state of the search: one job on a cluster, and its operator, at one moment."""

from typing import NamedTuple

from tests.search.pods import Pod, Pods


class Checkpoint(NamedTuple):
    """The newest one. Ages in seconds; ``requested`` is that of the request which it answers, -1 for none."""

    step: int
    age: int
    requested: int


class Answer(NamedTuple):
    """What the operator last heard of the learner."""

    work: int
    won: int
    age: int
    checkpoint: Checkpoint | None


class Refused(NamedTuple):
    """A member that the API server refused to make: for how long it has, and in how many seconds it is asked again."""

    member: str
    since: int
    again: int
    pause: int


class Memory(NamedTuple):
    """What the operator's process has beside what is stored; nothing of it outlives the process.

    ``status`` is one that is not stored yet (-1: none), ``counted`` the ends that it knows of. ``asks`` is the age of the request
    for a checkpoint that the learner is to answer. ``gone`` is the last of pods that have gone and whose end no turn has
    dealt with; ``settled`` are those that are there still, of which nothing need be kept.
    """

    status: int = -1
    counted: tuple[str, ...] = ()
    were_up: tuple[str, ...] = ()
    answer: Answer | None = None
    asks: int = -1
    gone: Pods = ()
    settled: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()


class Op(NamedTuple):
    """One call to the API server that a turn has decided on: its verb, and what it is about."""

    verb: str
    uid: str = ""
    number: int = -1
    """A status, a grace period, or the life that a new pod's name follows on."""
    counted: tuple[str, ...] = ()


class World(NamedTuple):
    """Attributes:
    stored: the status that the API server has.
    counted: uids of pods whose ends that status has dealt with, as long as there is anything of them.
    pods: as the API server has them, sorted.
    seen: as the operator's cache has them where that is behind; None where it is not.
    pending: calls that the turn under way has still to make.
    saved: the newest checkpoint.
    won: in truth: 1, the frames are played; 2, an evaluation has reached the target.
    real: failures of the core that were its own doing, as many as matter.
    fatal: one of them was an end that no restart mends.
    stood: seconds in which every part of the core had its place, and nothing was learned, as many as matter.
    spec: which of its specs the user wants.
    going: the claim of its checkpoints was deleted, and the learner's pod keeps it.
    """

    stored: int
    counted: tuple[str, ...] = ()
    memory: Memory = Memory()
    pods: Pods = ()
    seen: Pods | None = None
    pending: tuple[Op, ...] = ()
    saved: Checkpoint | None = None
    won: int = 0
    real: int = 0
    fatal: bool = False
    stood: int = 0
    spec: int = 0
    going: bool = False

    @property
    def status(self) -> int:
        """The status that the next turn starts from."""
        return self.memory.status if self.memory.status >= 0 else self.stored

    def pod(self, uid: str) -> Pod | None:
        return next((pod for pod in self.pods if pod.uid == uid), None)

    def learner(self) -> Pod | None:
        """The learner that works, where one does."""
        return next((pod for pod in self.pods if pod.member == "learner" and pod.works), None)

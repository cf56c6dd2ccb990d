"""What the verbs work on: jobs, wherever they run. One half of it is runs on this machine, the other a cluster's jobs."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from rljob_operator.polls.reach import Reach
from rljob_operator.view.events import EventView
from rljob_operator.view.job_view import JobView

T = TypeVar("T")
ShowLines = Callable[[Sequence[str], Iterable[tuple[str, str]]], None]
"""Given the names of all members whose logs are shown, and new lines: (member, line)."""


class Job(Protocol):
    """One job, and all that can be asked of it. What can't be done as asked raises a `UsageError`."""

    @property
    def place(self) -> str:
        """Where it is, as its user names it."""

    @property
    def pause_seconds(self) -> float:
        """The pause of a verb that waits, between two checks."""

    def command(self, verb: str) -> str:
        """What to type to use a verb on it."""

    def look(self, *, figures: bool = True) -> JobView:
        """The job now; ``figures`` also asks its learner and inference servers."""

    def change(self, patch: Mapping[str, Any]) -> int:
        """Merge ``patch`` (a JSON merge patch) into what is stored; answers the generation. Raises ManifestError, too."""

    def stop(self, say: Callable[[str], None], timeout_seconds: float) -> None:
        """End it in good order, so that it can be resumed, and wait until nothing of it runs."""

    def logs(self, who: str | None, *, tail: int, follow: bool, previous: bool, show: ShowLines) -> None:
        """Show what ``who`` (a role, a member, or None for all) has written: the last lines of each, and with ``follow``
        whatever comes, until Ctrl-C."""

    def policy(self, out: BinaryIO, say: Callable[[str], None], timeout_seconds: float) -> None:
        """Write its policy, the best judged one or else the newest, into ``out``: a tar archive of a checkpoint's files."""

    def events(self) -> Sequence[EventView]:
        """What was noted of it, the oldest first."""

    def ask(self, work: Callable[[Reach, Mapping[str, str]], Coroutine[Any, Any, T]]) -> T:
        """Do ``work`` with the way to its members and, by name, where each that can be asked now is asked."""

    def token(self) -> str:
        """What a request to a member carries that changes something there."""


class Listing(NamedTuple):
    """Jobs to show. ``is_list`` where several could have come; ``namespaces`` where they may be of different ones."""

    jobs: Sequence[JobView]
    is_list: bool
    namespaces: bool = False


class Jobs(Protocol):
    """All jobs of one place."""

    def chosen(self, name: str | None, *, or_experiment: bool = False) -> Job:
        """The job of that name; without one the job that is meant here, such as the only one. ``or_experiment``: on one machine
        an experiment, too, to stop it with all its runs or to explain it."""

    def shown(self, name: str | None, everything: bool, *, figures: bool) -> Listing:
        """What `get` shows; ``figures`` as in `Job.look`, where it is one job."""

    def splits(self, word: str) -> bool:
        """Whether ``word``, given as the only one, means a role or member and not a job."""


class Place(NamedTuple):
    """Where the user says that the jobs are. Any of it means a cluster; nothing means this machine."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    all_namespaces: bool = False

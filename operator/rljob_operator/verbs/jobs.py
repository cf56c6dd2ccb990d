"""The jobs that the verbs work on, wherever they run: runs on this machine, or a cluster's jobs; how a verb waits for one, and
what its user reads where a cluster refuses or a job is not there."""

import difflib
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeVar

from rljob.api.exit_codes import EXIT_FAILURE, EXIT_NO_PERMISSION, EXIT_UNAVAILABLE
from rljob.errors import CommandRefused, UsageError

from rljob_operator.core.context import some
from rljob_operator.experiments.state import ExperimentState
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden, Invalid, LacksRight, NotFound, Unauthorized
from rljob_operator.polls.reach import Reach
from rljob_operator.view.job_view import JobView
from rljob_operator.view.reasons import ending

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

    def logs(self, who: str | None, *, tail: int, follow: bool, show: ShowLines) -> None:
        """Show what ``who`` (a role, a member, or None for all) has written on this machine: the last lines of each, and with
        ``follow`` whatever comes, until Ctrl-C."""

    def policy(self, out: BinaryIO, say: Callable[[str], None], timeout_seconds: float) -> None:
        """Write its policy, the best judged one or else the newest, into ``out``: a tar archive of a checkpoint's files."""

    def experiment(self) -> ExperimentState:
        """What the journal of an experiment says."""

    def ask(self, work: Callable[[Reach, Mapping[str, str]], Coroutine[Any, Any, T]]) -> T:
        """Do ``work`` with the way to its members and, by name, where each that can be asked now is asked."""


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


RIGHTS_PAGE = "docs/running-on-kubernetes.md#rights"


@contextmanager
def in_words(server: str, verb: str, resource: str, namespace: str | None) -> Iterator[None]:
    """Turn the refusal of ``verb`` on ``resource`` in a namespace (None: in all) into a `UsageError`.

    A `NotFound` that names an object is passed on to the caller, which knows what else there is.
    """
    try:
        yield
    except Unauthorized as problem:
        raise CommandRefused(
            f"{server} does not accept this login: {problem}; log in again, or name another --context",
            EXIT_NO_PERMISSION,
        ) from None
    except LacksRight as problem:
        where = f"namespace {namespace}" if namespace is not None else "all namespaces (-n NS asks for one)"
        raise CommandRefused(
            f"this login lacks the right to {verb} {resource} in {where} ({RIGHTS_PAGE}); {server} says: {problem}",
            EXIT_NO_PERMISSION,
        ) from None
    except NotFound as problem:
        if problem.details.get("name"):
            raise
        raise UsageError(
            f"{server} knows no RLJobs: install the CRD with `kubectl apply --server-side -f manifests/crds/`"
        ) from None
    except (Invalid, Forbidden) as problem:  # a quota or a policy of the namespace, among others
        raise UsageError(str(problem)) from None
    except ApiError as problem:
        raise CommandRefused(f"{server}: {problem}", EXIT_UNAVAILABLE) from None


def not_there(name: str, namespace: str, here: Sequence[str], elsewhere: Sequence[str]) -> UsageError:
    """For a job that is not in its namespace.

    Args:
        here: the jobs that are.
        elsewhere: namespaces that have one of that name, as far as one may look.
    """
    said = f"there is no job {name} in namespace {namespace}"
    near = difflib.get_close_matches(name, here, n=3, cutoff=0.6)
    if elsewhere:
        return UsageError(f"{said}; there is one in {', '.join(elsewhere)}: -n {elsewhere[0]}")
    known = f"; there are: {some(here, 8)}" if here else ", nor any other"
    return UsageError(f"{said}; did you mean {' or '.join(near)}?" if near else f"{said}{known}")


def no_log(who: str, place: str, there: Sequence[str]) -> UsageError:
    """For a role or member without a log; it may have none yet."""
    return UsageError(f"{who}: no role or member of this name has a log in {place}; there are: {some(there, 20)}")


POLL_SECONDS: Final = 0.2
"""Between two checks of something on this machine."""


class NotReached(CommandRefused):
    """What was waited for did not happen; the message says what is instead. Exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_FAILURE)


def wait_for(
    job: Job, generation: int, reached: Callable[[JobView], bool], what: str, timeout_seconds: float
) -> JobView:
    """Wait until ``reached``, seen by a controller that knows ``generation``. Raises NotReached and, for a refused edit,
    UsageError. A server that is away for a moment is waited for."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            seen = job.look(figures=False)
        except CommandRefused as problem:
            if problem.exit_code != EXIT_UNAVAILABLE or time.monotonic() >= deadline:
                raise
            time.sleep(job.pause_seconds)
            continue
        known = seen.status.observed_generation >= generation
        accepted = seen.status.condition("Accepted")
        if accepted is not None and accepted.status == "False" and accepted.observed_generation >= generation:
            raise UsageError(accepted.message)
        if known and reached(seen):
            return seen
        if known and seen.status.finished:
            raise NotReached(f"the run has ended: {ending(seen)}")
        if not seen.attended:
            raise NotReached("the request is stored and waits for a controller")
        if time.monotonic() >= deadline:
            doubt = f"; {seen.problem}" if seen.problem else ""
            raise NotReached(
                f"not {what} within {timeout_seconds:g} s; it is {seen.state}: see `{job.command('why')}`{doubt}"
            )
        time.sleep(job.pause_seconds)


def without_controller(seen: JobView) -> str:
    """A sentence for a run without a controller: what goes on, and how to start one."""
    left = f"{len(seen.running)} of its processes are ending" if seen.running else "nothing runs"
    return f"{seen.place} has no controller ({left}); start one with `{seen.resumed_by}`"

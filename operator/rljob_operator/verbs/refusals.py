"""What an API server refuses a verb, and what is not there, in one sentence that says what would be right."""

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rljob.api.exit_codes import EXIT_NO_PERMISSION, EXIT_UNAVAILABLE
from rljob.errors import CommandRefused, UsageError

from rljob_operator.core.member import Role
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden, Invalid, LacksRight, NotFound, Unauthorized

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
            f"{server} does not accept this login: {problem}; log in anew, or name another --context",
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
    if near:
        return UsageError(f"{said}; did you mean {' or '.join(near)}?")
    if here:
        return UsageError(f"{said}; there are: {listed(here)}")
    return UsageError(f"{said}, nor any other")


def no_log(who: str, place: str, there: Sequence[str]) -> UsageError:
    """For a role or member without a log. A name that no role begins with is a mistake; a role may have no log yet."""
    try:
        Role.of(who)
        said = f"{who}: there is no log of it in {place}"
    except ValueError:
        said = f"{who}: no such role or member in {place}"
    return UsageError(f"{said}; there are: {listed(there, most=20)}")


def listed(names: Sequence[str], most: int = 8) -> str:
    """A few names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")

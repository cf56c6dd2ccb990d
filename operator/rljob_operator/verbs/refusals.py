"""What an API server refuses a verb, in one sentence that says what would be right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rljob.api.exit_codes import EXIT_NO_PERMISSION, EXIT_UNAVAILABLE
from rljob.errors import CommandRefused, UsageError

from rljob_operator.kube.apiserver.errors import ApiError, Forbidden, Invalid, NotFound, Unauthorized

RIGHTS_PAGE = "docs/running-on-kubernetes.md#rights"


@contextmanager
def in_words(server: str, verb: str, resource: str, namespace: str | None) -> Iterator[None]:
    """Turn the refusal of ``verb`` on ``resource`` in a namespace (None: in all) into a `UsageError`.

    A `NotFound` that names an object goes on to whoever knows what else there is.
    """
    try:
        yield
    except Unauthorized as problem:
        raise CommandRefused(
            f"{server} does not accept this login: {problem}; log in anew, or name another --context",
            EXIT_NO_PERMISSION,
        ) from None
    except Forbidden as problem:
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
    except Invalid as problem:
        raise UsageError(str(problem)) from None
    except ApiError as problem:
        raise CommandRefused(f"{server}: {problem}", EXIT_UNAVAILABLE) from None

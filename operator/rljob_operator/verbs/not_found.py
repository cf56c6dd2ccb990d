"""What a verb says of a job, a role or a member that is not there: which names there are."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from rljob.errors import UsageError

from rljob_operator.core.member import Role


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
    """For a role or member without a log. A word that no role begins with is a mistake; of a role there may be none yet."""
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

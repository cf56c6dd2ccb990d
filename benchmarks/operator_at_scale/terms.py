"""Who leads, as the Lease tells its watchers."""

from __future__ import annotations

import time
from typing import NamedTuple

from rljob_operator.kube.apiserver.resources import Object
from rljob_operator.kube.process.operator import LEASE_NAME


class Term(NamedTuple):
    """From when a process held the Lease, on the monotonic clock; an empty holder is none."""

    began: float
    holder: str


class Terms:
    """Every change of the Lease's holder, in order. A copy that a `Reflector` keeps in step."""

    def __init__(self) -> None:
        self.past: list[Term] = []

    @property
    def holder(self) -> str:
        """Who holds it now."""
        return self.past[-1].holder if self.past else ""

    def taken_from(self, before: str) -> Term | None:
        """The newest term, where it is of another holder than ``before``."""
        return self.past[-1] if self.holder not in ("", before) else None

    def given_up(self, by: str, since: float) -> float | None:
        """When its holder gave it up; None where it did not since then, as one that was killed."""
        for held, empty in zip(self.past, self.past[1:], strict=False):
            if held.holder == by and not empty.holder and empty.began >= since:
                return empty.began
        return None

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        return {"name": document["metadata"]["name"], "holder": document["spec"].get("holderIdentity") or ""}

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`."""
        for each in documents:
            self.change("MODIFIED", each)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`."""
        if document["name"] == LEASE_NAME and document["holder"] != self.holder:
            self.past.append(Term(time.monotonic(), document["holder"]))

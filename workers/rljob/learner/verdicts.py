"""The evaluator's verdicts over a run: a bounded list for the status, and which one is the best."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from rljob.api.learner_status import Verdict
from rljob.api.status_document import plain_rows, rows_in_order

KEPT = 1000


class Verdicts:
    """Verdicts in the order they arrived; the oldest go when there are more than a thousand."""

    def __init__(self) -> None:
        self.newest: tuple[Verdict, ...] = ()
        self._best: tuple[bool, float] | None = None

    def add(self, verdict: Verdict) -> bool:
        """Note a verdict; True when it is the best so far (see `Verdict.rank`). One that was sent twice is noted once."""
        if any((each.version, each.mean) == (verdict.version, verdict.mean) for each in self.newest[-20:]):
            return False
        self.newest = (*self.newest[-KEPT + 1 :], replace(verdict, time=time.time()))
        before = self._best
        self._best = verdict.rank if before is None else max(before, verdict.rank)
        return before is None or verdict.rank > before

    def documents(self) -> list[dict[str, Any]]:
        """The verdicts as a checkpoint keeps them."""
        return plain_rows(self.newest)

    def restore(self, documents: object, best: object = None) -> None:
        """Go on from those of a checkpoint, keeping any that are newer. ``best``: of the policy that is kept as the best,
        which may have been judged after that checkpoint."""
        restored = rows_in_order(Verdict)(documents)
        known = {each.time for each in restored}
        self.newest = (*restored, *(each for each in self.newest if each.time not in known))
        kept = rows_in_order(Verdict)([best] if best else [])
        self._best = max((each.rank for each in (*self.newest, *kept)), default=None)

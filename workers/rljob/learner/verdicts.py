"""The evaluator's verdicts over a run: a bounded list for the status, and which one is the best."""

import time
from dataclasses import replace
from typing import Any

from rljob.api.learner_status import LearnerStatus, Verdict

KEPT = 1000


class Verdicts:
    """Verdicts in the order they arrived; the oldest go when there are more than a thousand. ``trained_before``: the run began
    from another one's weights, so that its first ones are trained, too."""

    def __init__(self, trained_before: bool = False) -> None:
        self._trained_before = trained_before
        self.newest: tuple[Verdict, ...] = ()
        self._best: tuple[bool, float] | None = None

    def add(self, verdict: Verdict) -> bool:
        """Note a verdict; True when it is the best so far (see `Verdict.rank`) of weights that were trained: a short run is
        scored and played by what it has learned. One that was sent twice is noted once."""
        if any((each.version, each.mean) == (verdict.version, verdict.mean) for each in self.newest[-20:]):
            return False
        self.newest = (*self.newest[-KEPT + 1 :], replace(verdict, time=time.time()))
        is_best = self._is_trained(verdict) and (self._best is None or verdict.rank > self._best)
        if is_best:
            self._best = verdict.rank
        return is_best

    def _is_trained(self, verdict: Verdict) -> bool:
        return verdict.updates > 0 or self._trained_before

    def documents(self) -> list[dict[str, Any]]:
        """The verdicts as a checkpoint keeps them."""
        return [each.to_document() for each in self.newest]

    def restore(self, documents: object, best: object = None) -> None:
        """Go on from those of a checkpoint, keeping any that are newer. ``best``: of the policy that is kept as the best,
        which may have been judged after that checkpoint."""
        restored = _read(documents)
        known = {each.time for each in restored}
        self.newest = (*restored, *(each for each in self.newest if each.time not in known))
        kept = _read([best] if best else [])
        self._best = max((each.rank for each in (*self.newest, *kept) if self._is_trained(each)), default=None)


def _read(documents: object) -> tuple[Verdict, ...]:
    return LearnerStatus.lenient({"evaluations": documents}).evaluations

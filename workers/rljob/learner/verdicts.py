"""The evaluator's verdicts over a run: a bounded list for the status, and which one is the best."""

from __future__ import annotations

import time
from typing import Any

from rljob.api.learner_status import Verdict
from rljob.api.status_document import plain_rows, rows_in_order
from rljob.weights.evaluations import Evaluation

KEPT = 1000


class Verdicts:
    """Verdicts in the order they arrived; the oldest go when there are more than a thousand."""

    def __init__(self) -> None:
        self.newest: tuple[Verdict, ...] = ()
        self._best: tuple[bool, float] | None = None

    def add(self, evaluation: Evaluation, updates: int, raw_frames: int) -> bool:
        """Note a verdict; True when it is the best so far (see `Evaluation.rank`). One that was sent twice is noted once.

        Its place in the run is the one that the judged weights carry; ``updates`` and ``raw_frames``, the present, stand in
        where an evaluator did not send them back.
        """
        if any((each.version, each.mean) == (evaluation.version, evaluation.mean) for each in self.newest[-20:]):
            return False
        meta = evaluation.weights.meta if evaluation.weights is not None else {}
        verdict = Verdict(
            version=evaluation.version,
            updates=int(meta.get("updates", updates)),
            raw_frames=int(meta.get("raw_frames", raw_frames)),
            steps=int(meta.get("steps", 0)),
            mean=evaluation.mean,
            standard_error=evaluation.standard_error,
            mean_length_steps=float(evaluation.lengths.mean()),
            episodes=len(evaluation.returns),
            seed=evaluation.seed,
            seconds=evaluation.seconds,
            finished=evaluation.finished,
            metrics=evaluation.metrics,
            time=time.time(),
        )
        self.newest = (*self.newest[-KEPT + 1 :], verdict)
        is_best = self._best is None or evaluation.rank > self._best
        if is_best:
            self._best = evaluation.rank
        return is_best

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
        self._best = max(((each.finished, each.mean) for each in (*self.newest, *kept)), default=None)

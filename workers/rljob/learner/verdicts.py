"""The evaluator's verdicts over a run: a bounded list for the status, and which one is the best."""

from __future__ import annotations

import time
from typing import Any

from rljob.weights.evaluations import Evaluation

KEPT = 1000


class Verdicts:
    """Verdicts in the order they arrived; the oldest go when there are more than a thousand."""

    def __init__(self) -> None:
        self._documents: list[dict[str, Any]] = []
        self._best: tuple[bool, float] | None = None

    def add(self, evaluation: Evaluation, updates: int, raw_frames: int) -> bool:
        """Note a verdict; True when it is the best so far (see `Evaluation.rank`). One that was sent twice is noted once.

        Its place in the run is the one that the judged weights carry; ``updates`` and ``raw_frames``, the present, stand in
        where an evaluator did not send them back.
        """
        if any(
            (each["version"], each["mean"]) == (evaluation.version, evaluation.mean) for each in self._documents[-20:]
        ):
            return False
        meta = evaluation.weights.meta if evaluation.weights is not None else {}
        document = {
            "version": evaluation.version,
            "updates": int(meta.get("updates", updates)),
            "raw_frames": int(meta.get("raw_frames", raw_frames)),
            "steps": int(meta.get("steps", 0)),
            "mean": evaluation.mean,
            "standard_error": evaluation.standard_error,
            "episodes": len(evaluation.returns),
            "seed": evaluation.seed,
            "seconds": evaluation.seconds,
            "finished": evaluation.finished,
            "time": time.time(),
        }
        self._documents = [*self._documents[-KEPT + 1 :], document]
        is_best = self._best is None or evaluation.rank > self._best
        if is_best:
            self._best = evaluation.rank
        return is_best

    def documents(self) -> list[dict[str, Any]]:
        """The verdicts as the status document and a checkpoint show them."""
        return self._documents

    def restore(self, documents: list[dict[str, Any]]) -> None:
        """Go on from those of a checkpoint, keeping any that are newer."""
        known = {document["time"] for document in documents}
        self._documents = [*documents, *(each for each in self._documents if each["time"] not in known)]
        self._best = max(map(rank_of, self._documents), default=None)


def rank_of(document: dict[str, Any]) -> tuple[bool, float]:
    """`Evaluation.rank` of a verdict as `Verdicts.documents` gives it."""
    return bool(document.get("finished", True)), float(document["mean"])

"""Verdicts and their way to the learner: each is kept until the learner has noted it."""

import dataclasses
import logging
from collections import deque
from typing import Protocol

from rljob.api.learner_status import Verdict
from rljob.weights.evaluations import Evaluation

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 5.0
_KEPT = 64


class LearnerLink(Protocol):
    """Where verdicts go; ``noted`` is the version of the last verdict that arrived (0: none)."""

    noted: int

    def report(self, evaluation: Evaluation) -> bool: ...


class Verdicts:
    """Counts verdicts, decides which carry the weights they judged, and repeats one until it is noted.

    Only the best evaluation so far carries its weights: the learner keeps them as the best policy. A verdict may reach the
    learner twice when an answer is lost; it is told apart by its version.
    """

    def __init__(self) -> None:
        self.total = 0
        self.last: Verdict | None = None
        self._best: tuple[bool, float] | None = None
        self._undelivered: deque[Evaluation] = deque(maxlen=_KEPT)
        self._sent_at: float | None = None

    def add(self, evaluation: Evaluation) -> None:
        """A new verdict, with the weights judged; they are left out on the way unless it is the best so far."""
        self.total += 1
        self.last = evaluation.verdict
        best = self._best is None or evaluation.verdict.rank > self._best
        if best and evaluation.verdict.updates:  # the first ones are of weights that no update was made on
            self._best = evaluation.verdict.rank
        self._undelivered.append(evaluation if best else dataclasses.replace(evaluation, weights=None))

    def deliver(self, learner: LearnerLink, now: float) -> None:
        """Send the oldest verdict that is not noted, again after a few seconds without an answer. Never waits."""
        if self._undelivered and learner.noted == self.waiting_version and self._sent_at is not None:
            self._undelivered.popleft()
            self._sent_at = None
        if self._undelivered and (self._sent_at is None or now - self._sent_at >= _AGAIN_SECONDS):
            if self._sent_at is not None:
                log.warning("the learner has not noted the evaluation of version %d; sent again", self.waiting_version)
            if learner.report(self._undelivered[0]):
                self._sent_at = now

    @property
    def waiting_version(self) -> int:
        """Version of the oldest verdict that the learner has not noted, 0 if there is none."""
        return self._undelivered[0].verdict.version if self._undelivered else 0

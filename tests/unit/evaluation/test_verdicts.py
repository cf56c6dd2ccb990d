"""Verdicts arrive at least once, in order, and only the best carries weights."""

import numpy as np
from rljob.api.learner_status import Verdict
from rljob.evaluation.verdicts import Verdicts
from rljob.weights.flat import Evaluation, Weights


class Learner:
    """Notes what arrives unless it is away; what it is deaf to is lost."""

    def __init__(self) -> None:
        self.noted, self.away, self.deaf = 0, False, False
        self.heard: list[Evaluation] = []

    def report(self, evaluation: Evaluation) -> bool:
        if not self.away and not self.deaf:
            self.heard.append(evaluation)
            self.noted = evaluation.verdict.version
        return not self.away


def _verdict(version: int, mean: float, finished: bool = True) -> Evaluation:
    weights = Weights(version, 1, np.zeros(0, np.uint8), np.zeros(0, np.uint8))
    return Evaluation(Verdict(version=version, updates=version - 1, mean=mean, finished=finished), weights)


def test_only_the_best_evaluation_carries_its_weights_and_a_complete_one_is_better_than_any_other() -> None:
    verdicts, learner = Verdicts(), Learner()
    for version, mean, finished in (
        (1, 30.0, True),  # no update was made on these weights
        (2, -19.0, False),
        (3, -19.5, False),
        (4, -20.0, True),
        (5, 5.0, True),
        (6, 4.0, True),
        (7, 9.0, False),
        (8, 5.5, True),
    ):
        verdicts.add(_verdict(version, mean, finished))
        for now in (version, version + 0.1):
            verdicts.deliver(learner, now=float(now))
    assert [(e.verdict.version, e.weights is not None) for e in learner.heard] == [
        (1, True),
        (2, True),
        (3, False),
        (4, True),
        (5, True),
        (6, False),
        (7, False),
        (8, True),
    ]
    assert (verdicts.total, verdicts.waiting_version) == (8, 0)


def test_verdicts_wait_for_a_learner_that_is_away_and_are_repeated_when_lost() -> None:
    verdicts, learner = Verdicts(), Learner()
    for version in (1, 2):
        verdicts.add(_verdict(version, version - 1.0))
    # Away; then sent and lost; then too early to send again.
    for now, (learner.away, learner.deaf) in enumerate([(True, False), (False, True), (False, False)]):
        verdicts.deliver(learner, now=float(now))
    assert learner.heard == []
    for now in (7.0, 7.1, 7.2, 7.3):
        verdicts.deliver(learner, now=now)
    assert ([e.verdict.version for e in learner.heard], verdicts.waiting_version) == ([1, 2], 0)

"""Verdicts and their way to the learner: each is kept until the learner has noted it. And what the games so far prove of the mean
over all games of an evaluation: a bound that holds at every stop.

A verdict asks whether the mean of N games reaches a target. It is decided as soon as the bound does. One that is looked at after
every game must not be right at each look alone, but at all together. **An evaluation whose mean is below the target after
``LEAST_GAMES`` or more is given up**: that proves nothing, and need not, as newer weights are judged next.

**Where the bounds of a return are known** nothing else is assumed. The games are the first of N that are exchangeable, so a
claim "the mean of all N is at most m" says which mean is owed by those to come. A gambler who stakes a fixed share of his capital
on each game being above that multiplies it by 1 + share (return / owed - 1), where both count from the lower bound. If the claim
holds he gains nothing on average, and ever has 100 times his capital with a probability of 1 % at most (Ville). Claims that made
him so rich are refuted. (Waudby-Smith and Ramdas, 2020 and 2023: betting on means without replacement; the capital is split over
several shares.)

**Where they are not known** it is Student's interval about the policy's own mean, with the size of the effect drawn from a normal
distribution (Lai, 1976), which widens it to hold at every stop. It assumes that returns are about normal: a policy that loses
now and then, and has not yet, passes too often (`docs/decisions/0042-a-verdict-as-soon-as-it-is-sure.md` has figures).
"""

import dataclasses
import logging
import math
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rljob.api.learner_status import VERDICT_LEVEL, Verdict
from rljob.weights.client import WeightClient
from rljob.weights.flat import Evaluation

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 5.0
_KEPT = 64


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

    def deliver(self, learner: WeightClient, now: float) -> None:
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


LEAST_GAMES: Final = 20
"""No verdict has fewer, unless it asks for fewer."""

Bounds = tuple[float, float]
"""The least and the most that one game can bring."""

_SHARES: Final = np.array([0.3, 0.6, 0.9, 0.99])
_EFFECT_VARIANCE: Final = 0.25


def proven(returns: Sequence[float], episodes: int, bounds: Bounds | None) -> float:
    """The mean of ``episodes`` games is at least this, with ``VERDICT_LEVEL``; minus infinity before ``LEAST_GAMES``.

    returns: of the first games, in the order that was fixed beforehand, all within ``bounds``. Where these are not known, equal
    returns say nothing of those that are rarer, and prove nothing.
    """
    if len(returns) < LEAST_GAMES:
        return -math.inf
    seen = np.array(returns)
    if bounds is not None:
        return bounds[0] + _proven_above(seen - bounds[0], episodes)
    radius = float(seen.std(ddof=1)) * deviations(len(seen))
    return float(seen.mean()) - radius if radius else -math.inf


def deviations(games: int) -> float:
    """Half of Student's interval after ``games``, in standard deviations of their returns."""
    spread = 1 + games * _EFFECT_VARIANCE
    grown = (math.sqrt(spread) / (2 * (1 - VERDICT_LEVEL))) ** (2 / games)
    return math.sqrt((grown - 1) / (1 - grown / spread) * (games - 1) / games)


def capital(above: NDArray[np.float64], mean: float, episodes: int) -> NDArray[np.float64]:
    """The gambler's capital, in multiples of what has to be reached, after each game: its logarithm. From 0 on it is refuted that
    ``episodes`` games have that ``mean`` or a lower one.

    above: [..., games], returns of the first ones above the least that is possible.
    """
    owed = (episodes * mean - above.cumsum(-1) + above) / (episodes - np.arange(above.shape[-1]))
    gains = np.multiply.outer(_SHARES, above / np.where(owed > 0, owed, 1) - 1)
    grown = np.logaddexp.reduce(np.log1p(gains).cumsum(-1)) - math.log(len(_SHARES) / (1 - VERDICT_LEVEL))
    return np.where(owed > 0, grown, math.inf)


def _proven_above(above: NDArray[np.float64], episodes: int) -> float:
    """The highest mean that is proven for all games by the first ones, to a millionth of the most that they have."""
    proven, possible = 0.0, float(above.max())
    for _ in range(20):
        middle = (proven + possible) / 2
        proven, possible = (middle, possible) if capital(above, middle, episodes).max() >= 0 else (proven, middle)
    return proven

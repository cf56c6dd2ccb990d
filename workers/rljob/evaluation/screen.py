"""When an evaluation is hopeless: rules that end it long before its last game, and never in favour of the policy. Pure.

An evaluation asks whether the mean of N games reaches a target. It is given up

1. as soon as no outcome of the remaining games could bring the mean there, where the best possible return of a game is known; or
2. by its screen: once games 0 to 19 have ended, all of them, if the mean that they foretell lies below the target even at the
   upper end of a generous prediction.

For the second, let m and s be the mean and the standard deviation of the n = 20 screened games. The mean over all N is
(n m + (N - n) m') / N with the unknown mean m' of the others. If returns were normal, m' - m would be distributed as
s sqrt(1/n + 1/(N - n)) times Student's t with n - 1 degrees of freedom, so that the mean over all N stays below
m + t (N - n) / N s sqrt(1/n + 1/(N - n)) with the probability of that quantile. It is taken at 99 %: of evaluations that
would have reached the target at most one in a hundred is given up, and then a later one decides.

Returns are not normal. A game that is lost now and then lowers m but widens s more, so such a policy is played on. The other way
round the rule is less sure: of exponentially distributed returns up to one evaluation in twenty is given up wrongly, and a policy
that lives from rewards so rare that none of twenty games brought one always is.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from rljob.evaluation.score import Played

SCREEN_GAMES: Final = 20
"""Games 0 to 19 of an evaluation are its screen."""

_T_QUANTILE: Final = 2.539
"""Student's t with 19 degrees of freedom stays below this with probability 0.99 (any table of it)."""


def hopeless(
    target: float, ended: Sequence[Played], episodes: int, best_possible: float | None
) -> Sequence[Played] | None:
    """The games by which an evaluation of ``episodes`` games is given up now, or None to play on.

    ended: games that have ended, in any order. best_possible: the most that a game can bring, None where it is unknown. The
    screened games come back without those that overtook them, so their mean is one of games that were chosen beforehand.
    """
    if not could_still_reach(target, [game.points for game in ended], episodes, best_possible):
        return ended
    screened = [game for game in ended if game.index < SCREEN_GAMES]
    if episodes <= SCREEN_GAMES or len(screened) < SCREEN_GAMES:
        return None
    return screened if foretold(screened, episodes) < target else None


def foretold(screened: Sequence[Played], episodes: int) -> float:
    """The highest mean over ``episodes`` games that is predicted after the ``SCREEN_GAMES`` games of its screen."""
    returns = np.array([game.points for game in screened])
    seen, rest = len(returns), episodes - len(returns)
    spread = float(returns.std(ddof=1)) * math.sqrt(1 / seen + 1 / rest)
    return float(returns.mean()) + _T_QUANTILE * spread * rest / episodes


def could_still_reach(target: float, returns: Sequence[float], episodes: int, best_possible: float | None) -> bool:
    """Whether the mean over ``episodes`` games can still be at least ``target``, were every game to come perfect.

    Exact, not a guess: False only when no outcome of the remaining games reaches the target. Always True where the best
    possible return of a game is not known (``None``).
    """
    if best_possible is None:
        return True
    # fsum: the sum that decides must not depend on the order in which games happened to end.
    return math.fsum(returns) + (episodes - len(returns)) * best_possible >= target * episodes

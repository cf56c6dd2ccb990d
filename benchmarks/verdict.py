"""What a verdict before the last game costs: how often it is wrong, and how many games it saves.

Returns of policies (``tests/data/returns/policies.json``, with what each was) are drawn with replacement as games, and judged
against a target that lies so many of their standard deviations below their mean, or above it.

    python -m benchmarks.verdict --draws 100000

``passed_wrongly``: share of verdicts that say before the last game that the mean of all games reaches the target, and it does
not. ``passed``, ``all_games_pass``: share that pass, early or by all games; and that of verdicts which always play all.
``games``, ``games_given_up``: the mean number in those that passed, and in the others.
"""

import argparse
import json
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from rljob.evaluation.verdicts import LEAST_GAMES, Bounds, capital, deviations

from benchmarks.common import report
from tests.support.paths import ROOT

EPISODES = 100
MARGINS = (-0.5, -0.3, -0.1, 0.0, 0.1, 0.3, 0.5, 1.0)
"""By how many standard deviations the mean of a policy is above its target."""
_BATCH = 10_000


@dataclass(frozen=True)
class Policy:
    """The returns of one policy's games, and the bounds that are known of them."""

    returns: NDArray[np.float64]
    bounds: Bounds

    def target(self, margin: float) -> float:
        """The target that it is above by ``margin`` standard deviations."""
        return float(self.returns.mean() - margin * self.returns.std())


@dataclass(frozen=True)
class Shares:
    """Of many verdicts. games: the mean number in those that passed, games_given_up: in the others; None without any."""

    all_games_pass: float
    passed: float
    passed_wrongly: float
    games: float | None
    games_given_up: float | None


def policies() -> dict[str, Policy]:
    """Those that were recorded, by name."""
    recorded = json.loads((ROOT / "tests" / "data" / "returns" / "policies.json").read_text())
    return {name: Policy(np.array(each["returns"], float), tuple(each["bounds"])) for name, each in recorded.items()}


def judged(policy: Policy, target: float, draws: int, random: np.random.Generator, bounds: Bounds | None) -> Shares:
    """The verdicts on ``draws`` evaluations, where ``bounds`` are known."""
    returns = random.choice(policy.returns, (draws, EPISODES))
    proven, given_up = _first(_proven(returns, target, bounds)), _first(_means(returns) < target)
    all_games, early = returns.mean(1) >= target, proven < np.minimum(given_up, EPISODES)
    passes = early | (all_games & (given_up == EPISODES))
    played = np.minimum(proven, given_up)
    return Shares(
        float(all_games.mean()),
        float(passes.mean()),
        float((early & ~all_games).mean()),
        float(played[passes].mean()) if passes.any() else None,
        float(played[~passes].mean()) if not passes.all() else None,
    )


def _means(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    return returns.cumsum(1) / np.arange(1, EPISODES + 1)


def _proven(returns: NDArray[np.float64], target: float, bounds: Bounds | None) -> NDArray[np.bool_]:
    """After each game: whether it is proven that the mean of all reaches the target."""
    if bounds is not None:
        return np.maximum.accumulate(capital(returns - bounds[0], target - bounds[0], EPISODES), 1) >= 0
    games = np.arange(1, EPISODES + 1)
    mean = _means(returns)
    spread = np.sqrt(np.maximum((returns**2).cumsum(1) - games * mean**2, 0) / np.maximum(games - 1, 1))
    radius = spread * np.array([deviations(max(each, LEAST_GAMES)) for each in games])
    return (mean - radius >= target) & (spread > 1e-6)


def _first(side: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of games after which a verdict falls on that side; ``EPISODES`` where it does not before the last."""
    side = side[:, LEAST_GAMES - 1 : EPISODES - 1]
    return np.where(side.any(1), side.argmax(1) + LEAST_GAMES, EPISODES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100_000)
    draws = parser.parse_args().draws
    for name, policy in policies().items():
        for margin in MARGINS:
            for known in (policy.bounds, None):
                random, target = np.random.default_rng(1), policy.target(margin)
                parts = [judged(policy, target, _BATCH, random, known) for _ in range(draws // _BATCH)]
                mean = {
                    key: float(np.mean(found))
                    if (found := [f for p in parts if (f := asdict(p)[key]) is not None])
                    else None
                    for key in asdict(parts[0])
                }
                report("verdict", policy=name, margin=margin, bounds=known, **mean)


if __name__ == "__main__":
    main()

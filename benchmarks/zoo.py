"""The page of the zoo, docs/zoo.md, from the folders of its rows.

    rljob run zoo/cartpole-ppo --run-dir runs/zoo/cartpole-ppo
    python -m benchmarks.zoo runs/zoo/* --machine A

A row is an experiment of manifests/zoo. One whose folder is not given stays as the page has it. The commit is that of this
checkout: write the page where the rows were run.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rljob.api.examples import by_environment, examples
from rljob.comparison.comparison import compare
from rljob.comparison.estimates import Estimate
from rljob.telemetry.run_folder import OUTCOME_FILE

from benchmarks.common import machine

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "zoo.md"


class Published(NamedTuple):
    """What others have published, or what can be reached: a mean return, or the least and the most of several."""

    low: float
    high: float
    source: str


def _zoo(score: float, steps: str) -> Published:
    """One run of RL Baselines3 Zoo, with that many agent steps."""
    return Published(score, score, f"RL Zoo, {steps}")


_FROZEN = Published(0.70, 0.744, "threshold, optimum")
_TAXI = Published(7.4, 7.93, "our target, optimum")
PUBLISHED = {
    "acrobot-ppo": _zoo(-73.5, "1M"),
    "bipedalwalker-ppo": _zoo(288, "5M"),
    "breakout-ppo": _zoo(398, "10M at 84x84"),
    "cartpole-apex": _zoo(500, "50k, DQN"),
    "cartpole-ppo": _zoo(500, "100k"),
    "cartpole-vtrace": _zoo(500, "500k, A2C"),
    "frozenlake-apex": _FROZEN,
    "frozenlake-ppo": _FROZEN,
    "halfcheetah-ppo": _zoo(5819, "1M"),
    "halfcheetah-sac": _zoo(9535, "1M"),
    "hopper-ppo": _zoo(2410, "1M"),
    "hopper-sac": _zoo(2326, "1M"),
    "lunarlander-ppo": _zoo(242, "1M"),
    "lunarlandercontinuous-ppo": _zoo(271, "1M"),
    "lunarlandercontinuous-sac": _zoo(260, "500k"),
    "mountaincar-apex": _zoo(-100.8, "120k, DQN"),
    "mountaincar-ppo": _zoo(-110.4, "1M"),
    "mountaincarcontinuous-ppo": _zoo(88.3, "20k"),
    "pendulum-ppo": _zoo(-172, "100k"),
    "pendulum-sac": _zoo(-157, "20k"),
    "pendulum-vtrace": _zoo(-163, "1M, A2C"),
    "pong-apex": _zoo(20.6, "10M at 84x84, DQN"),
    "pong-ppo": _zoo(21, "10M at 84x84"),
    "pong-vtrace": _zoo(17.3, "10M at 84x84, A2C"),
    "taxi-apex": _TAXI,
    "taxi-ppo": _TAXI,
    "taxi-vtrace": _TAXI,
    "walker2d-ppo": _zoo(3479, "1M"),
    "walker2d-sac": _zoo(3863, "1M"),
}
"""By row. RL Baselines3 Zoo's are of its benchmark.md at 0088472b, BipedalWalker's at 22e3ff2."""

SOLVED = {
    "ALE/Pong-v5": 18.0,
    "Acrobot-v1": -100.0,
    "BipedalWalker-v3": 300.0,
    "CartPole-v1": 475.0,
    "FrozenLake-v1": 0.70,
    "HalfCheetah-v5": 4800.0,
    "Hopper-v5": 3800.0,
    "LunarLander-v3": 200.0,
    "LunarLanderContinuous-v3": 200.0,
    "MountainCar-v0": -110.0,
    "MountainCarContinuous-v0": 90.0,
    "Pendulum-v1": -200.0,
    "Taxi-v4": 7.4,
}
"""The mean return that counts as solved: Gymnasium's. Those of Pendulum and Pong, which have none, and of Taxi, whose 8 is above
the optimum, are our own."""

CAUSES = {
    "acrobot-ppo": "most likely budget, a fifth of theirs. ReLU left seeds at -500, with a separate critic too.",
    "pendulum-ppo": (
        "settings: unrolls of 64 steps, a third of an episode. Stable-Baselines3 reaches -529 and -375 with them, with 1,024 "
        "steps -169 and -151, rljob's three seeds -175 to -217."
    ),
}
"""Why a row is below what is published: its settings, its budget, a seed or a fault, as was found out."""

HEAD = """# The zoo

Settings for one environment each, and what seeds 1 to 5 score with them.

```sh
rljob examples --for CartPole-v1              # what there is for an environment
rljob run zoo/cartpole-ppo                    # five seeds, and their scores
rljob run zoo/cartpole-ppo --set seeds=1      # one seed
rljob render zoo/cartpole-ppo > my.yaml       # to change it
```

A seed plays its whole budget. Then its newest policy, not its best, is judged without exploration in plain Gymnasium, in games
that are the same for all seeds: 100, in FrozenLake 1,000, with MuJoCo 10 or 20. The score is the interquartile mean of the five
with its 95 % interval, by [`rljob compare`](comparing.md). *Solved* counts the seeds that reach the environment's threshold.
Seconds are a seed's median on one core that other programs shared: [expect less](performance.md).

The verdict compares the interval with the published score. RL Zoo is one run of
[RL Baselines3 Zoo](https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md) after so many agent steps, in the
environment's version of that time.
"""
COLUMNS = "| row | score (95 %) | solved | raw frames | seconds | date, machine, commit | published | verdict |"
FOOT = """\
`python -m benchmarks.zoo RUNS --machine LETTER` writes this page; rows whose folders are not given stay.
"""


def row(folder: Path, letter: str, commit: str) -> tuple[str, str]:
    """The name of the row that was run in ``folder``, and its line of the page."""
    name = json.loads((folder / "journal.jsonl").read_text().partition("\n")[0])["experiment"]["metadata"]["name"]
    environment = next(each for each, names in by_environment().items() if f"zoo/{name}" in names)
    group = compare([folder], target=SOLVED.get(environment)).groups[0]
    assert group.iqm is not None, f"{folder} has no score"
    frames = max(run.evaluations[-1]["raw_frames"] for run in group.runs)
    seconds = statistics.median(json.loads((run.path / OUTCOME_FILE).read_text())["seconds"] for run in group.runs)
    date = datetime.fromtimestamp(max(run.began_unix or 0.0 for run in group.runs), UTC).strftime("%Y-%m-%d")
    told = PUBLISHED[name]
    cells = (
        f"[{name}](../manifests/zoo/{name}.yaml)",
        f"{group.iqm.value:.4g} ({group.iqm.low:.4g} to {group.iqm.high:.4g})",
        f"{group.solved} of {len(group.runs)}" if environment in SOLVED else "-",
        f"{frames:,.0f}",
        f"{seconds:,.0f}",
        f"{date}, {letter}, {commit}",
        f"{told.low:g} to {told.high:g} ({told.source})" if told.low < told.high else f"{told.low:g} ({told.source})",
        verdict(group.iqm, told),
    )
    return name, f"| {' | '.join(cells)} |"


def verdict(score: Estimate, told: Published) -> str:
    """Where the score's interval lies beside what is published."""
    assert score.low is not None
    assert score.high is not None
    if score.high < told.low:
        return "**below**"
    return "above" if score.low > told.high else "inside"


def page(found: Iterable[tuple[str, str]], before: str, names: Sequence[str]) -> str:
    """The page with the rows ``found``, else as it was ``before``; below the table those that were never run."""
    lines = {line.partition("[")[2].partition("]")[0]: line for line in before.splitlines() if line.startswith("| [")}
    lines |= dict(found)
    table = [COLUMNS, "|---" * COLUMNS.count(" | ") + "|---|", *(lines[name] for name in names if name in lines)]
    waiting = ", ".join(f"[{name}](../manifests/zoo/{name}.yaml)" for name in names if name not in lines)
    causes = [f"- {name}: {CAUSES[name]}" for name in names if name in CAUSES and name in lines]
    return "\n".join(
        [
            HEAD,
            *table,
            "",
            *([*causes, ""] if causes else []),
            *([f"Not run with five seeds yet: {waiting}.", ""] if waiting else []),
            FOOT,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--machine", required=True, help="its letter in docs/performance.md")
    arguments = parser.parse_args()
    commit = machine()["commit"]
    found = [row(folder, arguments.machine, commit) for folder in arguments.folders]
    names = [name.removeprefix("zoo/") for name in examples() if name.startswith("zoo/")]
    PAGE.write_text(page(found, PAGE.read_text() if PAGE.exists() else "", names))


if __name__ == "__main__":
    main()

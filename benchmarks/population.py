"""A population against the same draws left alone, at equal raw frames: rows 1 and 3 of the acceptance table of populations.

    python -m benchmarks.population                                    # row 1: 8 members, 8 pairs of seeds
    python -m benchmarks.population --size 8 --pairs 8 --off 10        # row 3: all begin a factor of 10 off
    python -m benchmarks.population --size 4 --pairs 2 --frames 40000  # minutes

Both arms are experiments as `rljob run` leads them, so that members are real runs, and both begin with the same settings, drawn
by `search.random` with the seed of the pair. Each member of either arm is then judged in fresh games, by the weights that its
experiment kept as its best. A line of JSON a pair, and one of all pairs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rljob.api.document import dump_document

from benchmarks.common import machine, report

RATE, COST = "algorithm.learningRate", "algorithm.entropyCost"
BEST_RATE = 1e-3
"""Near which PPO reaches 500 here."""
WIDE = {RATE: {"logUniform": {"min": 1e-5, "max": 1e-1}}, COST: {"logUniform": {"min": 1e-4, "max": 1e-1}}}
REACHED = 475.0


def template(seed: int) -> dict[str, Any]:
    algorithm = {
        "type": "PPO",
        "gamma": 0.98,
        "unrollLength": 32,
        "batchSize": 16,
        "epochs": 10,
        "ppo": {"gaeLambda": 0.8, "maxPolicyLag": 0},
    }
    spec = {"environment": {"id": "CartPole-v1"}, "seed": seed, "algorithm": algorithm, "actors": {"envsPerActor": 16}}
    return {"spec": {**spec, "evaluator": {"enabled": False}}}


def parameters(off: float) -> dict[str, Any]:
    """Where members begin: anywhere, or with rates around one that is so many times too small."""
    return (
        WIDE
        if off == 1
        else WIDE | {RATE: {"logUniform": {"min": BEST_RATE / off / 1.5, "max": BEST_RATE / off * 1.5}}}
    )


def arm(kind: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """The manifest of one arm of a pair."""
    ready = options.frames // options.steps
    space = parameters(options.off)
    spec: dict[str, Any] = {
        "template": template(seed),
        "budget": {"rawFrames": options.frames},
        "parallelism": options.parallelism,
        "maxFailedTrials": 0,
    }
    if kind == "population":
        spec["population"] = {
            "size": options.size,
            "seed": seed,
            "readyRawFrames": ready,
            "parameters": WIDE,
            "initial": space if options.off != 1 else {},
            "explore": {"factor": options.factor, "probability": options.probability},
        }
    else:
        spec["search"] = {"random": {"trials": options.size, "seed": seed}, "parameters": space}
    return {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLExperiment",
        "metadata": {"name": kind},
        "spec": spec,
    }


def played(kind: str, seed: int, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Lead one arm, and judge each of its members in fresh games."""
    manifest, runs, began = folder / f"{kind}.yaml", folder / kind, time.monotonic()
    manifest.write_text(dump_document(arm(kind, seed, options)))
    rljob = [sys.executable, "-m", "rljob_operator"]
    with (folder / f"{kind}.log").open("wb") as log:
        subprocess.run([*rljob, "run", str(manifest), "--run-dir", str(runs)], stdout=log, stderr=log, check=True)
    seconds, means = time.monotonic() - began, []
    for member in range(options.size):
        words = ["eval", str(runs / f"{kind}-{member}"), "--episodes", str(options.games), "--json", "--summary"]
        said = subprocess.run([*rljob, *words], capture_output=True, check=True).stdout
        means.append(float(json.loads(said)["mean"]))
    kinds = [json.loads(line)["kind"] for line in (runs / "journal.jsonl").read_text().splitlines()]
    return {"means": means, "copies": kinds.count("Copy"), "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--frames", type=int, default=60_000, help="raw frames of a member")
    parser.add_argument("--steps", type=int, default=6, help="judgements of a member")
    parser.add_argument("--games", type=int, default=100, help="fresh games of a member")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument(
        "--off", type=float, default=1.0, help="all begin so many times too small a learning rate; 1: wide draws"
    )
    parser.add_argument("--factor", type=float, default=2.0, help="of explore")
    parser.add_argument("--probability", type=float, default=0.33, help="of explore, for each parameter")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="keep the folders here")
    options = parser.parse_args()
    report("machine", **machine())
    pairs = []
    for seed in range(options.first_seed, options.first_seed + options.pairs):
        with tempfile.TemporaryDirectory(prefix="rljob-population-") as temporary:
            folder = Path(temporary) if options.out is None else options.out / f"seed-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            found = {kind: played(kind, seed, folder, options) for kind in ("alone", "population")}
        best, median = ({kind: of(each["means"]) for kind, each in found.items()} for of in (max, statistics.median))
        pairs.append((best, median))
        report("population_pair", seed=seed, best=best, median=median, **found)
    report(
        "population",
        pairs=len(pairs),
        best_within_ten=sum(best["population"] >= best["alone"] - 10 for best, _ in pairs),
        median_better=sum(median["population"] > median["alone"] for _, median in pairs),
        reached={kind: sum(best[kind] >= REACHED for best, _ in pairs) for kind in ("population", "alone")},
    )


if __name__ == "__main__":
    main()

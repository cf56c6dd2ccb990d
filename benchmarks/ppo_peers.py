"""PPO on CartPole and HalfCheetah beside Stable-Baselines3's: agent steps a second, with equal batches, epochs and networks.

Both have 64-64 networks with tanh and a critic of its own, and normalise observations and returns. Rounds alternate, so that the
machine's drift meets both. One JSON line a run, one with the medians and ratios of each environment.

    python -m benchmarks.ppo_peers --sb3-python SB3/bin/python --rounds 3

The peer lives in a virtual environment of its own:

    python3.11 -m venv SB3
    SB3/bin/pip install torch==2.13.0 && SB3/bin/pip install stable-baselines3 'gymnasium[mujoco]'
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.common import machine, report
from benchmarks.gpu import jobs

PEER = Path(__file__).resolve().parent / "peers" / "sb3_ppo.py"


@dataclass(frozen=True)
class Terms:
    """What both train with. ``rows``: environments of ours in one actor, and of the peer."""

    environment: str
    rows: int
    steps: int
    epochs: int
    minibatches: int


TERMS = (Terms("CartPole-v1", 64, 128, 4, 4), Terms("HalfCheetah-v5", 16, 128, 10, 32))


def ours(terms: Terms, seconds: float) -> dict[str, Any]:
    """The job by `rljob run`."""
    ppo = {
        "unrollLength": terms.steps,
        "batchSize": terms.rows,
        "epochs": terms.epochs,
        "minibatches": terms.minibatches,
        "activation": "Tanh",
        "separateCritic": True,
    }
    spec = {
        "environment": {"id": terms.environment},
        "algorithm": {"type": "PPO", "ppo": ppo},
        "actors": {"envsPerActor": terms.rows},
        "evaluator": {"enabled": False},
        "successPolicy": {"rawFrames": 1_000_000_000},
    }
    head = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "ppo-peers"}}
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        job.write_text(yaml.safe_dump({**head, "spec": spec}))
        found = jobs.steady(jobs.run(job, Path(folder) / "run", [], seconds + 8), 3.0)
    return {name: found[name] for name in ("steps_per_second", "updates_per_second", "bottleneck", "window_seconds")}


def peer(python: str, terms: Terms, seconds: float, *, processes: bool) -> dict[str, Any]:
    """One run of the peer. Raises RuntimeError where it fails."""
    options = {
        "environment": terms.environment,
        "seconds": seconds,
        "envs": terms.rows,
        "steps": terms.steps,
        "epochs": terms.epochs,
        "minibatches": terms.minibatches,
    }
    command = [python, str(PEER), *(word for name, value in options.items() for word in (f"--{name}", str(value)))]
    command += ["--processes"] if processes else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"peer"')]
    if not lines:
        raise RuntimeError(f"{PEER.name} ended with {done.returncode}: {done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    report("machine", **machine())
    for terms in TERMS:
        rates: dict[str, list[float]] = {"ours": [], "sb3": [], "sb3 in processes": []}
        for round_ in range(options.rounds):
            for name in rates:
                found = (
                    ours(terms, options.seconds)
                    if name == "ours"
                    else peer(options.sb3_python, terms, options.seconds, processes=name != "sb3")
                )
                rates[name].append(found["steps_per_second"])
                report("ppo_peers_run", system=name, environment=terms.environment, round=round_, **found)
        medians = {name: statistics.median(values) for name, values in rates.items()}
        best = max(medians["sb3"], medians["sb3 in processes"])
        report("ppo_peers", environment=terms.environment, **medians, ratio_to_the_faster=medians["ours"] / best)


if __name__ == "__main__":
    main()

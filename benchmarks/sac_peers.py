"""SAC beside Stable-Baselines3's in the same minutes, a core each: the return after equally many steps, and how long they took.

Ours is a preset by `rljob run`, all its processes on one core; the peer has RL Baselines3 Zoo's settings and the other core. The
last policy of each plays the same number of games without noise. One JSON line a run.

    python -m benchmarks.sac_peers HalfCheetah --sb3-python SB3/bin/python
    python -m benchmarks.sac_peers LunarLander --sb3-python SB3/bin/python --module sbx

The peer lives in a virtual environment of its own:

    python3.11 -m venv SB3
    SB3/bin/pip install torch==2.13.0 && SB3/bin/pip install stable-baselines3 'gymnasium[mujoco,box2d]'   # or sbx-rl
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import machine, report
from benchmarks.gpu import jobs

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / "benchmarks" / "peers" / "sb3_sac.py"
GAMES = 20


@dataclass(frozen=True)
class Task:
    """What both train, and for how long."""

    example: str
    environment: str
    steps: int


TASKS = {
    "HalfCheetah": Task("halfcheetah-sac", "HalfCheetah-v5", 300_000),
    "LunarLander": Task("lunarlander-sac", "LunarLanderContinuous-v3", 150_000),
}


def ours(task: Task, steps: int, seed: int, core: int) -> dict[str, Any]:
    """The example by `rljob run`; its last checkpoint plays. Raises CalledProcessError where a command fails."""
    job = ROOT / "manifests" / "examples" / f"{task.example}.yaml"
    sets = (f"spec.seed={seed}", f"spec.successPolicy.rawFrames={steps}", "spec.evaluator.enabled=false")
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        words = [word for item in sets for word in ("--set", item)]
        _on(core, [sys.executable, "-m", "rljob_operator", "run", str(job), "--run-dir", str(run_dir), *words])
        played = _on(
            core,
            [sys.executable, "-m", "rljob_operator", "eval", str(run_dir), "--json", "--episodes", str(GAMES)],
        )
        points = [record for record in jobs.records(run_dir) if "steps_total" in record]
        return {
            "return_mean": json.loads(played)["mean"],
            "seconds": jobs.outcome(run_dir)["seconds"],
            "updates": points[-1]["updates"],
            "steps": points[-1]["steps_total"],
        }


def peer(python: str, module: str, task: Task, steps: int, seed: int, core: int) -> dict[str, Any]:
    """One run of the peer. Raises CalledProcessError where it fails."""
    options = {"module": module, "environment": task.environment, "steps": steps, "seed": seed, "games": GAMES}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    found: dict[str, Any] = json.loads(_on(core, [python, str(PEER), *words]).splitlines()[-1])
    return found


def _on(core: int, command: list[str]) -> str:
    done = subprocess.run(["taskset", "-c", str(core), *command], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--sb3-python", required=True)
    parser.add_argument("--module", choices=("stable_baselines3", "sbx"), default="stable_baselines3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, help="in place of the task's")
    options = parser.parse_args()
    report("machine", **machine())
    task = TASKS[options.task]
    steps = options.steps or task.steps
    cores = sorted(os.sched_getaffinity(0))
    started = time.monotonic()
    with ThreadPoolExecutor(2) as both:
        their = both.submit(peer, options.sb3_python, options.module, task, steps, options.seed, cores[1])
        our = both.submit(ours, task, steps, options.seed, cores[0])
        found = {"ours": our.result(), options.module: their.result()}
    for system, figures in found.items():
        report("sac_peers_run", system=system, task=options.task, steps_asked=steps, seed=options.seed, **figures)
    ratio = found["ours"]["return_mean"] / found[options.module]["return_mean"]
    report(
        "sac_peers", task=options.task, seed=options.seed, ratio_of_returns=ratio, seconds=time.monotonic() - started
    )


if __name__ == "__main__":
    main()

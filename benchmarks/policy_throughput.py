"""How fast a trained policy acts from Python, ``rljob.load_policy``: seconds until it can, and actions a second of a batch.

    python -m benchmarks.policy_throughput RUN_OR_CHECKPOINT [--rounds 5]

Every round is a fresh process, which takes observations of the policy's own environment. Printed are the median of the rounds,
the least and the most; batches are timed for a second after a few that are not. On a busy machine the actions for each second of
processor time say more than those for each second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np

BATCHES = (1, 256)
_WARM_UP = 20
_SECONDS = 1.0


def measured(source: str, threads: int) -> dict[str, float]:
    """The figures of this process, in seconds and in actions a second."""
    started = time.perf_counter()
    import rljob

    imported = time.perf_counter()
    load = rljob.load_policy
    policy = load(source)
    loaded, computed_loading = time.perf_counter(), time.process_time()
    import torch

    if threads:
        torch.set_num_threads(threads)
    env = policy.environment()
    observation, _ = env.reset(seed=1)
    policy.act(observation[None])
    acting = time.perf_counter()
    figures = {
        "import rljob, s": imported - started,
        "load_policy with its imports, s": loaded - imported,
        "Python, load_policy and its imports, CPU-s": computed_loading,
        "first environment and action, s": acting - loaded,
    }
    seen = [observation]
    for step in range(max(BATCHES) - 1):
        observation, _, terminated, truncated, _ = env.step(step % policy.num_actions)
        seen.append(observation if not (terminated or truncated) else env.reset()[0])
    for deterministic in (True, False):
        for size in BATCHES:
            batch = np.stack(seen[:size])
            for _ in range(_WARM_UP):
                policy.act(batch, deterministic)
            begun, computed, calls = time.perf_counter(), time.process_time(), 0
            while (seconds := time.perf_counter() - begun) < _SECONDS:
                policy.act(batch, deterministic)
                calls += 1
            how = f"batch of {size}, {'deterministic' if deterministic else 'as judged'}, actions"
            figures[f"{how}/s"] = calls * size / seconds
            figures[f"{how}/CPU-s"] = calls * size / (time.process_time() - computed)
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a run or a checkpoint")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0 leaves it as a notebook finds it")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.once:
        print(json.dumps(measured(options.source, options.threads)))
        return
    again = [sys.executable, "-m", "benchmarks.policy_throughput", options.source, "--once"]
    again += ["--threads", str(options.threads)]
    rounds = [
        json.loads(subprocess.run(again, capture_output=True, text=True, check=True).stdout)
        for _ in range(options.rounds)
    ]
    for name in rounds[0]:
        values = [each[name] for each in rounds]
        digits = 3 if name.endswith(", s") else 0
        median, least, most = (
            f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values))
        )
        print(f"{name:45} {median:>12}   ({least} to {most})")


if __name__ == "__main__":
    main()

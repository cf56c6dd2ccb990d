"""rljob's whole Ape-X job beside Stable-Baselines3 DQN on Pong, at the same samples per insert, batch and network.

Both train on every step 8 samples in batches of 32 with the Nature network on 84x84 frames; rljob computes double-DQN
targets and prioritized sampling on top. Rounds alternate, so that the machine's drift meets both; one that the host of a
virtual machine disturbs is measured again. One JSON line a round and one with the ratio of the medians.

    python -m benchmarks.end_to_end --sb3-python /path/to/sb3-venv/bin/python --rounds 3

``--avx2`` keeps the kernels of both sides to AVX2 and float32: about what a processor without AVX-512 does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from rljob.telemetry.recorder import read_records

from benchmarks.common import limit_to_avx2, machine, report, undisturbed
from tests.support.paths import EXAMPLES, ROOT

JOB = EXAMPLES / "pong-apex-nature.yaml"
SAME_TERMS = [
    "spec.algorithm.batchSize=32",
    "spec.algorithm.apeXDQN.dueling=false",
    "spec.replay.rateLimiter.samplesPerInsert=8",
    "spec.replay.rateLimiter.minSize=2000",
    "spec.replay.rateLimiter.errorBuffer=16000",
    "spec.replay.capacity=100000",
    "spec.actors.replicas=1",
    "spec.evaluator.enabled=false",
    "spec.evaluator.triggerReturn=",
    "spec.successPolicy.targetReturn=",
    "spec.learner.resources.requests.cpu=2",
]


def rljob_round(seconds: float, warm_up_seconds: float, overrides: list[str]) -> dict[str, Any]:
    """Updates and steps per second of one `rljob run` between the end of its warm-up and ``seconds`` later."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        sets = [word for item in SAME_TERMS + overrides for word in ("--set", item)]
        command = [sys.executable, "-m", "rljob_operator", "run", str(JOB), "--run-dir", str(run_dir), *sets]
        # Twenty seconds cover the processes' start and the first minSize steps.
        bound = ["--max-seconds", str(20 + warm_up_seconds + seconds)]
        subprocess.run([*command, *bound], check=True, stdout=subprocess.DEVNULL)
        records = [r for r in read_records(run_dir / "metrics.jsonl") if r.get("updates", 0) > 0 and "steps_total" in r]
    first = records[0]["elapsed_seconds"]
    window = [r for r in records if r["elapsed_seconds"] >= first + warm_up_seconds]
    start, end = window[0], window[-1]
    elapsed = end["elapsed_seconds"] - start["elapsed_seconds"]
    return {
        "system": "rljob Ape-X",
        "updates_per_second": (end["updates"] - start["updates"]) / elapsed,
        "steps_per_second": (end["steps_total"] - start["steps_total"]) / elapsed,
        "window_seconds": elapsed,
    }


def sb3_round(python: str, seconds: float, warm_up_seconds: float) -> dict[str, Any]:
    """The same of Stable-Baselines3, in its own virtual environment."""
    script = ROOT / "benchmarks" / "peers" / "sb3_dqn.py"
    options = ["--seconds", str(seconds), "--warm-up-seconds", str(warm_up_seconds)]
    answer = subprocess.run([python, str(script), *options], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sb3-python", help="Python of a virtual environment with stable-baselines3; left out: rljob alone"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--warm-up-seconds", type=float, default=10)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument(
        "--avx2", action="store_true", help="hold all processes to AVX2 arithmetic (no AVX-512, no bf16)"
    )
    arguments = parser.parse_args()
    if arguments.avx2:
        limit_to_avx2()
    ours, theirs = [], []
    measured = [partial(rljob_round, arguments.seconds, arguments.warm_up_seconds, arguments.overrides)]
    if arguments.sb3_python:
        measured.append(partial(sb3_round, arguments.sb3_python, arguments.seconds, arguments.warm_up_seconds))
    for number in range(arguments.rounds):
        for rates, measure in zip((ours, theirs), measured, strict=False):
            result = undisturbed("end_to_end", measure, round=number)
            rates.append(result["updates_per_second"])
    summary: dict[str, Any] = {"rljob_updates_per_second": statistics.median(ours)}
    if theirs:
        summary["sb3_updates_per_second"] = statistics.median(theirs)
        summary["ratio"] = statistics.median(ours) / statistics.median(theirs)
    report("end_to_end_summary", avx2_only=arguments.avx2, **summary, machine=machine())


if __name__ == "__main__":
    main()

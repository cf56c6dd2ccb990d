"""Wall-clock from the first process to the verdict, for several seeds of one job; curves go to a CSV a seed.

    python -m benchmarks.time_to_solve manifests/examples/pong-apex.yaml --seeds 1 2 3 --curves tests/data/curves

Each seed is one `rljob run` in a fresh folder, one after the other. Resident memory is the sum over all processes of the run
(proportional set size, so that shared pages count once), sampled every five seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rljob.telemetry.recorder import read_records

from benchmarks.common import machine, report, resident_bytes

SAMPLE_SECONDS = 5.0
CURVE_COLUMNS = ("elapsed_seconds", "raw_frames", "updates", "mean_return", "steps_per_second", "updates_per_second")


def run_seed(job: Path, seed: int, run_dir: Path, overrides: list[str], max_seconds: float) -> dict[str, Any]:
    """One run; seconds, verdict, and the memory of all its processes."""
    sets = [word for item in [f"spec.seed={seed}", *overrides] for word in ("--set", item)]
    bound = ["--run-dir", str(run_dir), "--max-seconds", str(max_seconds)]
    command = [sys.executable, "-m", "rljob_operator", "run", str(job), *bound, *sets]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    memory: list[int] = []
    while process.poll() is None:
        memory.append(sum(resident_bytes(process.pid).values()))
        time.sleep(min(SAMPLE_SECONDS, max_seconds))
    outcome = json.loads((run_dir / "outcome.json").read_text())
    records = read_records(run_dir / "metrics.jsonl")
    verdicts = [r for r in records if r.get("kind") == "evaluation"]
    last = [r for r in records if "steps_total" in r][-1]
    return {
        "job": job.stem,
        "seed": seed,
        "outcome": outcome["reason"],
        "message": outcome["message"],
        "seconds_to_verdict": outcome["seconds"],
        "seconds_until_all_ended": time.monotonic() - started,
        "steps": last["steps_total"],
        "updates": last["updates"],
        "evaluations": len(verdicts),
        "memory_peak_gib": max(memory) / 2**30,
        "memory_at_half_gib": memory[len(memory) // 2] / 2**30,
        "memory_at_end_gib": statistics.median(memory[-6:-1] or memory) / 2**30,
    }


def write_curve(run_dir: Path, path: Path) -> None:
    """The run's learning curve and its evaluations, as lines of a ``metrics.jsonl``."""
    kept = (*CURVE_COLUMNS, "kind", "mean", "episodes", "finished", "version")
    found = [record for record in read_records(run_dir / "metrics.jsonl") if record.get("kind") in (None, "evaluation")]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for record in found:
            file.write(json.dumps({name: _short(record[name]) for name in kept if name in record}) + "\n")


def _short(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder for the run folders")
    parser.add_argument("--curves", type=Path, help="folder for one curve a seed")
    parser.add_argument("--max-seconds", type=float, default=1800)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    arguments = parser.parse_args()
    seconds: list[float] = []
    for seed in arguments.seeds:
        run_dir = arguments.runs / f"{arguments.job.stem}-seed-{seed}-{time.strftime('%H%M%S')}"
        result = run_seed(arguments.job, seed, run_dir, arguments.overrides, arguments.max_seconds)
        report("time_to_solve", **result)
        seconds.append(result["seconds_to_verdict"] if result["outcome"] == "TargetReturnReached" else math.inf)
        if arguments.curves:
            write_curve(run_dir, arguments.curves / f"{arguments.job.stem}-seed-{seed}.jsonl")
    # A seed that was not solved counts as slower than all others: leaving it out would flatter the median.
    median, worst = statistics.median(seconds), max(seconds)
    report(
        "time_to_solve_summary",
        job=arguments.job.stem,
        solved=sum(map(math.isfinite, seconds)),
        seeds=len(seconds),
        median_seconds=median if math.isfinite(median) else None,
        worst_seconds=worst if math.isfinite(worst) else None,
        machine=machine(),
    )


if __name__ == "__main__":
    main()

"""Resident memory of all processes of a whole Pong job while its replay fills to 200,000 transitions of 84x84, and beyond.

The job is the example as it is (actor, replay with its Redis, learner with its mirror, evaluator), but for the samples
per insert: with few of them the actor hardly waits for the learner, and the replay is full after minutes instead of half an
hour. What is stored, and where, is the same. Memory is the proportional set size, so that shared pages count once.
One JSON line a sample and one with the verdict: flat means that what was resident when the replay had just become full is
still about all that there is after it has been overwritten for ``--beyond`` of its capacity.

    python -m benchmarks.resident_memory
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

import psutil
from rljob.telemetry.recorder import read_records

from benchmarks.common import machine, report, resident_bytes
from tests.support.paths import EXAMPLES

JOB = EXAMPLES / "pong-apex-nature.yaml"
GOAL_GB = 6.0
SAMPLE_SECONDS = 5.0
GB = 1e9


def overrides(capacity: int, samples_per_insert: float) -> list[str]:
    """The fields of the example that differ here."""
    return [
        f"spec.replay.capacity={capacity}",
        f"spec.replay.rateLimiter.samplesPerInsert={samples_per_insert}",
        "spec.replay.rateLimiter.minSize=2000",
        "spec.algorithm.batchSize=32",
        "spec.successPolicy.targetReturn=",
    ]


def by_role(pid: int, run_dir: Path) -> dict[str, int]:
    """Resident bytes of every role of the run, its children included; what is no role is the controller."""
    names = {}
    for path in (run_dir / "roles").glob("*.process.json"):
        names[int(json.loads(path.read_text())["pid"])] = path.name.removesuffix(".process.json")
    roles: dict[str, int] = {}
    for each, size in resident_bytes(pid).items():
        role = names.get(each) or next((names[p] for p in _ancestors(each) if p in names), "rljob run")
        roles[role] = roles.get(role, 0) + size
    return roles


def _ancestors(pid: int) -> list[int]:
    try:
        return [process.pid for process in psutil.Process(pid).parents()]
    except psutil.Error:
        return []


def stored_and_steps(run_dir: Path) -> tuple[int, int]:
    """Transitions in the replay, and steps so far, as the learner last recorded them."""
    for record in reversed(read_records(run_dir / "metrics.jsonl") if (run_dir / "metrics.jsonl").exists() else []):
        if "replay/items" in record:
            return int(record["replay/items"]), int(record["steps_total"])
    return 0, 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacity", type=int, default=200_000, help="transitions")
    parser.add_argument("--beyond", type=float, default=0.5, help="how much of the capacity to overwrite afterwards")
    parser.add_argument("--samples-per-insert", type=float, default=0.25)
    parser.add_argument("--max-seconds", type=float, default=900)
    arguments = parser.parse_args()
    samples: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        fields = overrides(arguments.capacity, arguments.samples_per_insert)
        sets = [word for item in fields for word in ("--set", item)]
        bound = ["--run-dir", str(run_dir), "--max-seconds", str(arguments.max_seconds)]
        process = subprocess.Popen(
            [sys.executable, "-m", "rljob_operator", "run", str(JOB), *bound, *sets], stdout=subprocess.DEVNULL
        )
        started = time.monotonic()
        try:
            steps = 0
            while process.poll() is None and steps < arguments.capacity * (1 + arguments.beyond):
                time.sleep(SAMPLE_SECONDS)
                stored, steps = stored_and_steps(run_dir)
                roles = by_role(process.pid, run_dir)
                total = sum(roles.values())
                samples.append({"stored": stored, "steps": steps, "total": total})
                report(
                    "resident_memory",
                    seconds=time.monotonic() - started,
                    stored=stored,
                    steps=steps,
                    total_gb=total / GB,
                    **{f"{role}_gb": size / GB for role, size in sorted(roles.items())},
                )
        finally:
            process.terminate()
            process.wait(60)
    verdict(samples, arguments.capacity)


def verdict(samples: list[dict[str, Any]], capacity: int) -> None:
    """Report the peak, and the growth between the moment of fullness and the end."""
    peak = max(each["total"] for each in samples) / GB
    full = [each["total"] / GB for each in samples if each["steps"] >= capacity]
    if len(full) < 4:
        sys.exit(f"the replay was never full for long ({len(full)} samples); give it more --max-seconds")
    quarter = max(2, len(full) // 4)
    first, last = statistics.median(full[:quarter]), statistics.median(full[-quarter:])
    report(
        "resident_memory_summary",
        capacity=capacity,
        peak_gb=peak,
        goal_gb=GOAL_GB,
        when_full_gb=first,
        at_the_end_gb=last,
        growth_after_full=last / first - 1,
        machine=machine(),
    )


if __name__ == "__main__":
    main()

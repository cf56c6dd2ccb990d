"""CartPole to its verdict while the environment fails: each step raises with probability 1e-4 and stalls 2 to 5 s with 1e-4.

    python -m benchmarks.failing_environment --jobs cartpole-impala cartpole-apex --seeds 1 2 3

Runs the example with ``benchmarks.failing_cart_pole:make`` in place of CartPole-v1 (several runs' worth of processes, nothing
shared), and prints for each whether 475 was reached, after how many seconds and steps, and how often environments failed in the
actors and in the evaluator. A run that neither ends nor fails within ``--max-seconds`` is reported as such.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rljob.telemetry.recorder import read_records

from benchmarks.common import machine, report
from tests.support.paths import EXAMPLES, IMPORTABLE


def run(job: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One run in a folder of its own, which stays where it is."""
    run_dir = Path(tempfile.mkdtemp(prefix=f"{job}-failing-")) / "run"
    kwargs = json.dumps({"crash": arguments.crash, "stall": arguments.stall})
    example = EXAMPLES / f"{job}.yaml"
    sets = [
        "spec.environment.id=benchmarks.failing_cart_pole:make",
        f"spec.environment.kwargs={kwargs}",
        "spec.successPolicy.targetReturn.value=475",  # that of the presets is of CartPole-v1 itself
        f"spec.seed={seed}",
        *arguments.overrides,
    ]
    command = [sys.executable, "-m", "rljob_operator", "run", str(example)]
    command += ["--run-dir", str(run_dir), "--max-seconds", str(arguments.max_seconds)]
    command += [word for item in sets for word in ("--set", item)]
    started = time.monotonic()
    code = subprocess.run(command, stdout=subprocess.DEVNULL, env=os.environ | IMPORTABLE, check=False).returncode
    outcome = json.loads((run_dir / "outcome.json").read_text())
    steps = [record["steps_total"] for record in read_records(run_dir / "metrics.jsonl") if "steps_total" in record]
    return {
        "job": job,
        "seed": seed,
        "crash_per_step": arguments.crash,
        "stall_per_step": arguments.stall,
        "exit_code": code,
        "outcome": outcome["reason"],
        "message": outcome["message"],
        "seconds": outcome["seconds"],
        "seconds_until_all_ended": time.monotonic() - started,
        "steps": steps[-1] if steps else 0,
        "failures": {log.stem: failures(log) for log in sorted((run_dir / "logs").glob("*.log"))},
        "run_dir": str(run_dir),
    }


def failures(log: Path) -> int:
    """How many environments a role's log says were begun anew."""
    return len(re.findall(r"begun anew \(failure", log.read_text(errors="replace")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", default=["cartpole-impala", "cartpole-apex"], help="examples, by name")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--crash", type=float, default=1e-4)
    parser.add_argument("--stall", type=float, default=1e-4)
    parser.add_argument("--max-seconds", type=float, default=900)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    arguments = parser.parse_args()
    for job in arguments.jobs:
        for seed in arguments.seeds:
            report("failing_environment", **run(job, seed, arguments))
    report("failing_environment_machine", machine=machine())


if __name__ == "__main__":
    main()

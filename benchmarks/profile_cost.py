"""What a profile costs the loop that is profiled, and what the means for it cost while there is none; CPU time, turn about.

    python -m benchmarks.profile_cost --rounds 10

A thread does what an actor does with 16 CartPoles and a network of 64 units, stage by stage, beside six threads that wait as a
role's do. CPU time of a turn with the profiler reading it over that without, and what the profiler's own thread takes of a core.
CPU time is the thread's own, so that other programs on the machine disturb it little. Then nanoseconds of one change of stage.
"""

from __future__ import annotations

import argparse
import threading
import time
from statistics import median
from typing import Any

import gymnasium
import torch
from rljob.telemetry import profiler, timeline
from rljob.telemetry.clock import StageClock
from rljob.telemetry.profiler import PROFILER

from benchmarks.common import machine, report
from benchmarks.stage_clock_cost import nanoseconds_per_change


class Actor:
    """Acts until told to stop; ``turns`` and ``cpu_seconds`` may be read at any time."""

    def __init__(self) -> None:
        self.turns, self.cpu_seconds, self.over = 0, 0.0, False
        self._thread = threading.Thread(target=self._run, name="actor")
        self._thread.start()

    def _run(self) -> None:
        torch.set_num_threads(1)
        environment = gymnasium.make_vec("CartPole-v1", num_envs=16, vectorization_mode="vector_entry_point")
        network = torch.nn.Sequential(
            torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)
        )
        observation, _ = environment.reset(seed=1)
        clock = StageClock(("infer", "env"))
        while not self.over:
            clock.enter("infer")
            with torch.no_grad():
                action = network(torch.from_numpy(observation)).argmax(1).numpy()
            clock.enter("env")
            observation, *_ = environment.step(action)
            self.turns, self.cpu_seconds = self.turns + 1, time.thread_time()

    def stop(self) -> None:
        self.over = True
        self._thread.join()


def window(actor: Actor, seconds: float, *, profiled: bool) -> tuple[float, list[dict[str, Any]]]:
    """(CPU seconds of a turn, parts of the profile)."""
    since, parts = PROFILER.read()["next"] if profiled else 0, []
    time.sleep(1.0 if profiled else 0.0)
    turns, cpu, until = actor.turns, actor.cpu_seconds, time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.5)
        if profiled:
            answer = PROFILER.read(since)
            since, parts = answer["next"], [*parts, *answer["parts"]]
    cost = (actor.cpu_seconds - cpu) / max(1, actor.turns - turns)
    while timeline.recording is not None:  # until nothing is sampled any more
        time.sleep(0.1)
    return cost, parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each window")
    options = parser.parse_args()
    profiler.LEASE_SECONDS = 1.0  # type: ignore[misc]
    off = nanoseconds_per_change(2000, 100)
    timeline.recording = timeline.Recording()
    on = nanoseconds_per_change(2000, 100)
    timeline.recording = None
    rest = threading.Event()
    for number in range(6):
        threading.Thread(target=rest.wait, name=f"waits-{number}", daemon=True).start()
    actor = Actor()
    time.sleep(3.0)
    rounds = [
        (window(actor, options.seconds, profiled=False)[0], *window(actor, options.seconds, profiled=True))
        for _ in range(options.rounds)
    ]
    actor.stop()
    ratios = [with_it / without for without, with_it, _ in rounds]
    parts = [part for _, _, found in rounds for part in found]
    seconds = sum((part["ended_ns"] - part["began_ns"]) * 1e-9 for part in parts)
    own = sum(ran for part in parts for name, ran, _ in part["threads"].values() if name == "profile")
    report(
        "profile_cost",
        turn_with_over_without=round(median(ratios), 3),
        lowest=round(min(ratios), 3),
        highest=round(max(ratios), 3),
        turn_microseconds=median(without for without, _, _ in rounds) * 1e6,
        profilers_own_cores=own / seconds,
        samples_per_second=sum(part["samples"] for part in parts) / seconds,
        change_of_stage_nanoseconds=off,
        change_of_stage_while_profiled_nanoseconds=on,
        rounds=options.rounds,
        machine=machine(),
    )


if __name__ == "__main__":
    main()

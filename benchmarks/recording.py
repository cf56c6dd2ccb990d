"""What it costs to record a step: processor time of the builders of chunks and of unrolls, for 16 environments.

Nothing is played: the same observation comes again and again, and an episode ends every 60 steps. One JSON line a layout, the
median of rounds.

    python -m benchmarks.recording [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from rljob.envs.base import StepResult
from rljob.experience import Decision, SegmentLayout, make_builder, transition_layout, unroll_layout
from rljob.observation import frames, zeros

from benchmarks.common import machine, report

NUM_ENVS, STEPS = 16, 1500
PONG, CARTPOLE = frames((84, 84), np.uint8, 4), frames((4,), np.float32)
LAYOUTS = {
    "chunks of Pong": transition_layout(50, PONG, n_step=3),
    "chunks of CartPole": transition_layout(50, CARTPOLE, n_step=3),
    "unrolls of Pong": unroll_layout(20, PONG),
    "unrolls of CartPole": unroll_layout(20, CARTPOLE),
}


def microseconds_a_step(layout: SegmentLayout) -> float:
    """Processor time of one step of all environments."""
    builder = make_builder(layout, NUM_ENVS, 0.99, True, "actor-0", "benchmark", 1)
    observation = zeros(layout.observation, NUM_ENVS)
    builder.begin(observation)
    nowhere, numbers = np.zeros(NUM_ENVS, np.bool_), np.full(NUM_ENVS, -1.0, np.float32)
    first = np.arange(NUM_ENVS) == 0
    decision = Decision(np.zeros(NUM_ENVS, np.int64), numbers, numbers, 1)
    goes_on = StepResult(observation, numbers, nowhere, nowhere, nowhere, None, NUM_ENVS, ())
    ends = StepResult(observation, numbers, first, nowhere, nowhere, observation, NUM_ENVS, ())
    started = time.process_time()
    for step in range(STEPS):
        builder.record(decision, ends if step % 60 == 59 else goes_on)
    return (time.process_time() - started) / STEPS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = range(parser.parse_args().rounds)
    report("machine", **machine())
    for name, layout in LAYOUTS.items():
        found = statistics.median(microseconds_a_step(layout) for _ in rounds)
        report("recording", layout=name, environments=NUM_ENVS, microseconds_a_step=found)


if __name__ == "__main__":
    main()

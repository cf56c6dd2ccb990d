"""What a nested Dict costs on its way: two pictures, vectors, indices and a mask, recorded and drawn, beside its raw bytes.

Samples of the spaces are played by one process. Pictures of noise, which no compression shortens; and for a second line the same
sample all the time.


    python -m benchmarks.nested [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters
from rljob.envs import EnvironmentSpec, describe_environment, make_vector_environment
from rljob.experience import Decision, Segment, make_builder
from rljob.experience.ring import SegmentRing, transition_arrays
from rljob.ingest.table import read_segment
from rljob.wire import decode_header, encode

from benchmarks.common import machine, report

NUM_ENVS, STEPS, BATCH = 8, 400, 256
SPACE = spaces.Dict(
    {
        "cameras": spaces.Tuple((spaces.Box(0, 255, (64, 64, 3), np.uint8), spaces.Box(0, 255, (32, 32), np.uint8))),
        "joints": spaces.Box(-1, 1, (24,), np.float32),
        "mode": spaces.Discrete(5),
        "cards": spaces.MultiDiscrete([13, 13, 4]),
        "action_mask": spaces.MultiBinary(9),
    }
)


class Nested(gymnasium.Env[Any, Any]):
    """Shows samples of ``SPACE``; ``still``: one and the same."""

    observation_space, action_space = SPACE, spaces.Discrete(9)

    def __init__(self, still: bool = False) -> None:
        self._still = SPACE.sample() if still else None

    def _seen(self) -> Any:
        return {**(self._still or SPACE.sample()), "action_mask": np.ones(9, np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._step = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return self._seen(), 0.0, self._step == 60, False, {}


def recorded(spec: EnvironmentSpec, layout: Any, env_params: EnvironmentParameters) -> tuple[list[Segment], float]:
    """Segments of ``STEPS`` steps, and microseconds of a builder for a step of one environment."""
    env = make_vector_environment(spec.id, env_params, NUM_ENVS, 1, spec=spec)
    builder = make_builder(layout, NUM_ENVS, 0.99, False, "actor-0", "benchmark", 1)
    builder.begin(env.reset())
    number = np.zeros(NUM_ENVS, np.float32)
    decision = Decision(np.zeros(NUM_ENVS, np.int64), number, number, 1)
    segments, spent = [], 0.0
    for _ in range(STEPS):
        result = env.step(decision.action)
        began = time.process_time()
        segments += builder.record(decision, result)
        spent += time.process_time() - began
    env.close()
    return segments, spent / STEPS / NUM_ENVS * 1e6


def drawn(layout: Any, segments: list[Segment]) -> float:
    """Microseconds to gather one transition into a batch."""
    ring, generator = SegmentRing(layout, 32), np.random.default_rng(0)
    for slot, segment in enumerate(segments[:32]):
        ring.insert(slot, 1, segment)
    ids = np.concatenate([slot * layout.length + np.arange(s.steps) for slot, s in enumerate(segments[:32])])
    into = transition_arrays(layout, BATCH)
    chosen = [generator.choice(ids, BATCH) for _ in range(50)]
    began = time.process_time()
    for some in chosen:
        ring.gather(some, into)
    return (time.process_time() - began) / len(chosen) / BATCH * 1e6


def measure(name: str, still: bool, rounds: int) -> None:
    env_params = EnvironmentParameters(kwargs={"still": still}, backend="Sync", frame_stack=4)
    spec = describe_environment("benchmarks.nested:Nested", env_params)
    params = ApeXDQNParameters(n_step=3, chunk_length=50)
    layout = algorithm("ApeXDQN").layout(spec, params)
    builder_us, draw_us = [], []
    for _ in range(rounds):
        segments, microseconds = recorded(spec, layout, env_params)
        builder_us.append(microseconds)
        draw_us.append(drawn(layout, segments))
    steps = sum(segment.steps for segment in segments)
    sent = [encode(segment.to_message(), compress=layout.compressed_columns) for segment in segments]
    assert all(read_segment(decode_header(parts), layout) for parts in sent)
    report(
        "nested",
        observations=name,
        raw_bytes_an_observation=layout.row_bytes,
        bytes_a_step=round(sum(len(part) for parts in sent for part in parts) / steps),
        bytes_a_step_uncompressed=round(sum(array.nbytes for s in segments for array in s.columns.values()) / steps),
        builder_microseconds_a_step=round(statistics.median(builder_us), 2),
        draw_microseconds_a_transition=round(statistics.median(draw_us), 2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    report("machine", **machine())
    measure("noise", False, rounds)
    measure("one and the same", True, rounds)


if __name__ == "__main__":
    main()

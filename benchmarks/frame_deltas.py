"""Frames as they are, and as differences to the frame before, both as LZ4: bytes and processor time of a step.

    python -m benchmarks.frame_deltas [--steps 2400]

Segments of 50 steps with 6 frames more, as an actor sends them, of a random player's games at 84x84 and 42x42, of pictures in
colour, and of vectors, which travel as they are. Times are of one thread, packing and unpacking, the least of three passes;
``auto`` is what `actors.compression: Auto` takes after eight segments.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rljob.actor.session import TRIED_SEGMENTS, Compression
from rljob.api import EnvironmentParameters
from rljob.choices import Choices
from rljob.envs import describe_environment, make_vector_environment
from rljob.wire.column import StoredColumn, pack_column, unpack_column
from rljob.wire.schema import CODES

from benchmarks.common import machine, report

GAMES = (
    "Pong",
    "Breakout",
    "SpaceInvaders",
    "MsPacman",
    "Seaquest",
    "Qbert",
    "Enduro",
    "MontezumaRevenge",
    "Asteroids",
    "Freeway",
)
STEPS, MORE, COPIES = 50, 6, 8
PASSES = 3


def segments(environment: str, parameters: EnvironmentParameters, steps: int) -> list[NDArray[Any]]:
    """The newest frames, or vectors, of random play, cut as an actor cuts them."""
    spec = describe_environment(environment, parameters)
    vector = make_vector_environment(environment, parameters, COPIES, 1, spec=spec)
    random, choices = np.random.default_rng(0), Choices(spec.action_sizes, controls=spec.controls)
    control = np.zeros((COPIES, spec.controls), np.float32) if spec.controls else None
    vector.reset()
    frames = []
    for _ in range(max(STEPS + MORE, steps // COPIES)):
        if control is not None:
            control = random.standard_normal(control.shape).astype(np.float32)
        frames.append(vector.step(choices.uniform(COPIES, random), control).observation[:, -1].copy())
    vector.close()
    stream = np.stack(frames)
    starts = range(0, len(stream) - STEPS - MORE + 1, STEPS)
    return [
        np.ascontiguousarray(stream[start : start + STEPS + MORE, copy]) for start in starts for copy in range(COPIES)
    ]


def measured(arrays: Sequence[NDArray[Any]], *, delta: bool) -> tuple[float, float, float]:
    """Bytes a step, and microseconds of a step to pack and to unpack."""
    packing, unpacking = [], []
    packed: list[tuple[StoredColumn, Any]] = []
    for _ in range(PASSES):
        began = time.thread_time()
        packed = [pack_column(0, CODES[each.dtype], each, compressed=True, delta=delta) for each in arrays]
        packing.append(time.thread_time() - began)
        began = time.thread_time()
        for stored, buffer in packed:
            unpack_column("frames", stored, buffer)
        unpacking.append(time.thread_time() - began)
    steps = STEPS * len(arrays)
    return sum(len(buffer) for _, buffer in packed) / steps, 1e6 * min(packing) / steps, 1e6 * min(unpacking) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2400)
    options = parser.parse_args()
    report("machine", **machine())
    cases: list[tuple[str, dict[str, Any]]] = [
        (f"ALE/{game}-v5", {"atari": {"frameSize": size}}) for size in (84, 42) for game in GAMES
    ]
    cases += [("CarRacing-v3", {}), ("HalfCheetah-v5", {}), ("CartPole-v1", {})]
    for environment, settings in cases:
        parameters = EnvironmentParameters.model_validate(settings)
        arrays = segments(environment, parameters, options.steps)
        plain, delta = measured(arrays, delta=False), measured(arrays, delta=True)
        auto = Compression(("frames",), "Auto")
        for each in arrays[:TRIED_SEGMENTS]:
            auto.look({"frames": each})
        report(
            "frame_deltas",
            environment=environment,
            shape=list(arrays[0].shape[1:]),
            raw_bytes=arrays[0].nbytes / STEPS,
            bytes_a_step=plain[0],
            delta_bytes_a_step=delta[0],
            ratio=delta[0] / plain[0],
            microseconds=plain[1:],
            delta_microseconds=delta[1:],
            auto="Delta" if auto.deltas else "LZ4",
        )


if __name__ == "__main__":
    main()

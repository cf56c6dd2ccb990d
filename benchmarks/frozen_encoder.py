"""Pixels beside the features of a frozen encoder: bytes of a step, processor time of acting, and updates.

    python -m benchmarks.frozen_encoder RUN [--game ALE/Pong-v5] [--steps 2400]

RUN: a run of `pong-vtrace.yaml`, or a checkpoint of one; its trunk, 128 features of 42x42 frames, is the encoder. A random
player's steps are cut into segments of 50 with 6 more, as an actor sends them: ``wire_bytes`` as the wire has them (pictures as
LZ4, floats as they are), ``memory_bytes`` as the learner keeps them. Acting is the environments' step and the pass of the job's
own network, Ape-X's Compact or MLP, by 8 environments; an update is one of double DQN on 128 transitions. Both ways take turns,
round by round, on one thread, and the least processor time counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import rljob
import torch
from rljob.algorithms.apex_dqn.loss import ApeXDQN
from rljob.algorithms.batches import TransitionBatch
from rljob.api import ApeXDQNParameters, EnvironmentParameters
from rljob.encoders import make_encoded_vector
from rljob.envs import EnvironmentSpec, RestartLimit, describe_environment
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.learner.optim.updater import TransitionUpdater
from rljob.policy.export import export
from rljob.wire.column import pack_column
from rljob.wire.schema import CODES

from benchmarks.common import machine, report

COPIES, SEGMENT, MORE, BATCH, ROUNDS, UPDATES = 8, 50, 6, 128, 7, 60
NETWORK = {"pixels": "Compact", "latents": "MLP"}


class Way:
    """One way to see a game: its environments, its network, and what was measured of it."""

    def __init__(self, name: str, game: str, parameters: EnvironmentParameters) -> None:
        self.name, self.spec = name, describe_environment(game, parameters)
        torch.manual_seed(0)
        params = ApeXDQNParameters.model_validate({"batch_size": BATCH, "network": NETWORK[name], "layer_norm": True})
        self._network = ApeXDQN().build(self.spec, params, parameters)
        self._updater = TransitionUpdater(ApeXDQN(), params, self._network, torch.device("cpu"), DataParallelThreads(1))
        self._environments = make_encoded_vector(self.spec, parameters, COPIES, 1, RestartLimit(10))
        self._random, self.rows = np.random.default_rng(0), [self._environments.reset()]
        self._batch = _random_batch(self.spec)
        self.acting: list[float] = []
        self.update: list[float] = []

    def act(self, steps: int) -> None:
        began = time.thread_time()
        for _ in range(steps):
            ApeXDQN().infer(self._network, self.rows[-1], np.zeros((COPIES, 2, 0), np.float32))
            actions = self._random.integers(0, self.spec.num_actions, COPIES)
            self.rows.append(self._environments.step(actions).observation)
        self.acting.append((time.thread_time() - began) / (steps * COPIES))

    def learn(self) -> None:
        began = time.process_time()
        for _ in range(UPDATES):
            self._updater.update(self._batch, 0)
        self.update.append((time.process_time() - began) / UPDATES)

    def wire_bytes(self) -> float:
        """The bytes of a step, of its observations alone."""
        stream = np.stack([rows[:, -1] for rows in self.rows])
        starts = range(0, len(stream) - SEGMENT - MORE + 1, SEGMENT)
        cut = [
            np.ascontiguousarray(stream[start : start + SEGMENT + MORE, copy])
            for start in starts
            for copy in range(COPIES)
        ]
        packed = [pack_column(0, CODES[each.dtype], each, compressed=each.dtype.kind == "u")[1] for each in cut]
        return sum(len(buffer) for buffer in packed) / (SEGMENT * len(cut))


def _random_batch(spec: EnvironmentSpec) -> TransitionBatch:
    random = np.random.default_rng(0)
    first, then = (torch.from_numpy(spec.columns[0].drawn(random, BATCH)) for _ in range(2))
    return TransitionBatch(
        observation=first,
        next_observation=then,
        action=torch.randint(0, spec.num_actions, (BATCH,)),
        n_step_return=torch.randn(BATCH),
        discount=torch.full((BATCH,), 0.97),
        weight=torch.ones(BATCH),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--game", default="ALE/Pong-v5")
    parser.add_argument("--steps", type=int, default=2400)
    options = parser.parse_args()
    report("machine", **machine())
    torch.set_num_threads(1)
    policy = rljob.load_policy(options.run)
    with tempfile.TemporaryDirectory() as folder:
        file = export(policy, "safetensors", Path(folder)).file
        seen: dict[str, Any] = {"atari": {"frame_size": 42}}
        ways = [
            Way("pixels", options.game, EnvironmentParameters.model_validate(seen)),
            Way(
                "latents", options.game, EnvironmentParameters.model_validate({**seen, "encoder": {"file": str(file)}})
            ),
        ]
        for _ in range(ROUNDS):
            for way in ways:
                way.act(options.steps // COPIES // ROUNDS + 1)
                way.learn()
    for way in ways:
        report(
            "frozen_encoder",
            seen=way.name,
            game=options.game,
            trained_updates=(policy.manifest.get("counters") or {}).get("updates"),
            wire_bytes=way.wire_bytes(),
            memory_bytes=way.spec.row_bytes,
            acting_cpu_microseconds_a_step=1e6 * min(way.acting),
            update_cpu_milliseconds=1e3 * min(way.update),
            updates_per_cpu_second=1 / min(way.update),
        )


if __name__ == "__main__":
    main()

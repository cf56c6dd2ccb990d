"""Central and local inference do the same under a fixed seed, bit for bit: actions, chunks, priorities, episodes."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import describe_environment
from rljob.experience import Chunk
from rljob.inference.server import InferenceServer

from .inference_parts import Given, Player, a_model, serving, weights_of


def assert_equal_chunks(first: list[Chunk], second: list[Chunk]) -> None:
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        assert one.sequence == other.sequence
        assert one.environment == other.environment
        assert (one.policy_version, one.epoch) == (other.policy_version, other.epoch)
        for name in ("frames", "observation_at", "bootstrap_at", "action", "n_step_return", "discount", "flags"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)
        # Bit for bit, NaN included: a priority is |TD error|, so it shows the last bit of every value.
        assert one.priority.tobytes() == other.priority.tobytes()


@pytest.mark.parametrize(("environment", "turns"), [("ALE/Pong-v5", 70), ("CartPole-v1", 600)])
@pytest.mark.parametrize("version", [0, 3])
def test_central_equals_local(environment: str, turns: int, version: int) -> None:
    limit = {"max_episode_raw_frames": 100} if environment.startswith("ALE") else {}
    parameters = EnvironmentParameters(**limit)
    spec = describe_environment(environment, parameters)
    weights = weights_of(spec, parameters, version) if version else None
    local = Player(environment, parameters, 8, None, Given(weights))
    local.play(turns)
    with serving(
        InferenceServer(f"inproc://{uuid.uuid4().hex}", a_model(spec, parameters), Given(weights), 0.002)
    ) as server:
        central = Player(environment, parameters, 8, server.endpoint, Given())
        central.play(turns)
    assert_equal_chunks(local.sink.chunks, central.sink.chunks)
    assert (local.figures.steps, local.figures.raw_frames) == (central.figures.steps, central.figures.raw_frames)
    assert len(local.sink.reported) == len(central.sink.reported) > 0
    for one, other in zip(local.sink.reported, central.sink.reported, strict=True):
        assert {n: c.tolist() for n, c in one.columns.items()} == {n: c.tolist() for n, c in other.columns.items()}
    if version:
        truncations = sum(int((chunk.flags & 2).astype(bool).sum()) for chunk in central.sink.chunks)
        assert truncations or not environment.startswith("ALE"), "no final value was ever asked for"
        assert any(chunk.priority.std() > 0 for chunk in central.sink.chunks)

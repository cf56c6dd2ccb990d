"""Central and local inference do the same under a fixed seed, bit for bit: actions, experience, memory, episodes."""

from __future__ import annotations

import uuid
from dataclasses import fields

import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.inference.server import InferenceServer

from .inference_parts import Given, Kept, Player, Setup, apex, impala, serving

# So short that games are truncated: the values of final observations are asked for too.
PONG = ("ALE/Pong-v5", EnvironmentParameters(max_episode_raw_frames=100))
SETUPS = {
    "apex-pong": (apex(*PONG), 45),
    "apex-cartpole": (apex(), 400),
    "impala-lstm-pong": (impala(*PONG, recurrent="LSTM"), 45),
    "impala-cartpole": (impala(), 300),
    "impala-lstm-cartpole": (impala(recurrent="LSTM"), 300),
}


def played(setup: Setup, turns: int, version: int) -> tuple[Player, Player]:
    """A local and a central player after so many turns, with the weights of ``version`` (0 for none)."""
    weights = setup.weights(version) if version else None
    local = Player(setup, 8, None, Given(weights))
    local.play(turns)
    server = InferenceServer(f"inproc://{uuid.uuid4().hex}", setup.model(), Given(weights), 0.002)
    with serving(server):
        central = Player(setup, 8, server.endpoint, Given())
        central.play(turns)
    return local, central


def assert_equal_experience(first: Kept, second: Kept) -> None:
    assert len(first.chunks) == len(second.chunks) > 0
    for one, other in zip(first.chunks, second.chunks, strict=True):
        assert type(one) is type(other)
        for field in fields(one):
            mine, theirs = getattr(one, field.name), getattr(other, field.name)
            if isinstance(mine, np.ndarray):
                # Byte for byte: priorities and log-probabilities show the last bit of every output.
                assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
                assert mine.tobytes() == theirs.tobytes(), f"{field.name} of piece {one.sequence}"
            else:
                assert mine == theirs, field.name
    assert len(first.reported) == len(second.reported) > 0
    for mine, theirs in zip(first.reported, second.reported, strict=True):
        assert {n: c.tolist() for n, c in mine.columns.items()} == {n: c.tolist() for n, c in theirs.columns.items()}


@pytest.mark.parametrize("name", SETUPS)
def test_central_equals_local(name: str) -> None:
    setup, turns = SETUPS[name]
    local, central = played(setup, turns, version=3)
    assert_equal_experience(local.sink, central.sink)
    assert (local.figures.steps, local.figures.raw_frames) == (central.figures.steps, central.figures.raw_frames)
    assert {chunk.policy_version for chunk in central.sink.chunks} == {3}
    assert {chunk.epoch for chunk in central.sink.chunks} == {7}
    if "lstm" in name:
        assert any(chunk.state.any() for chunk in central.sink.chunks), "no memory was ever recorded"  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["apex-cartpole", "impala-lstm-cartpole"])
def test_without_weights_both_play_the_same_random_games(name: str) -> None:
    setup, turns = SETUPS[name]
    local, central = played(setup, turns, version=0)
    assert_equal_experience(local.sink, central.sink)

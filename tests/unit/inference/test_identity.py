"""Central and local inference do the same under a fixed seed: actions, experience, memory, episodes.

Bit for bit where this processor's library computes a row alike in batches of any size from four on; where it does not, numbers
that the network made agree to rounding, and all else exactly.
"""

import uuid
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from rljob.algorithms.registry import algorithm
from rljob.api import EnvironmentParameters, ImpalaParameters
from rljob.inference.server import InferenceServer
from rljob.observation import each, of_columns

from tests.support.inference import Given, Kept, Player, Setup, apex, assert_equal_segments, impala, ppo, serving

# So short that games are truncated: the values of final observations are asked for too.
PONG = ("ALE/Pong-v5", EnvironmentParameters(max_episode_raw_frames=100))
# An environment that asserts that only what it allows is done. How long its steps take must not decide whether it runs in
# processes, where it draws other numbers.
EVERYTHING = EnvironmentParameters(
    kwargs={"observation": "nested", "action": "dict", "masked": True}, frame_stack=2, backend="Sync"
)
NESTED = ("tests.support.every_space:EverySpace", EVERYTHING)
MIXED = (
    NESTED[0],
    EnvironmentParameters(kwargs={"observation": "dict", "action": "mixed", "masked": True}, backend="Sync"),
)
RECURRENT = ImpalaParameters(precision="FP32", hidden_units=16, recurrent="LSTM", lstm_units=8, unroll_length=10)
SETUPS = {
    "apex-nested": (apex(*NESTED), 60),
    "impala-lstm-nested": (Setup(algorithm("IMPALA"), RECURRENT, *NESTED), 60),
    "impala-lstm-mixed": (Setup(algorithm("IMPALA"), RECURRENT, *MIXED), 60),
    "impala-pendulum": (impala("Pendulum-v1", EnvironmentParameters(actions="Squashed")), 300),
    "apex-pong": (apex(*PONG), 45),
    "apex-cartpole": (apex(), 400),
    "impala-lstm-pong": (impala(*PONG, recurrent="LSTM"), 45),
    "impala-cartpole": (impala(), 300),
    "impala-lstm-cartpole": (impala(recurrent="LSTM"), 300),
    "ppo-cartpole": (ppo(), 300),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Actors and the inference thread compute in one thread each; how several share out a product may vary from call to call."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def played(setup: Setup, turns: int, version: int) -> tuple[Player, Player]:
    """A local and a central player after so many turns, with the weights of ``version`` (0 for none)."""
    weights = setup.weights(version) if version else None
    least = version if setup.method.name == "PPO" else None
    local = Player(setup, 8, None, Given(weights), least)
    local.play(turns)
    server = InferenceServer(f"inproc://{uuid.uuid4().hex}", setup.model(), Given(weights), 0.002)
    with serving(server):
        central = Player(setup, 8, server.endpoint, Given(), least)
        central.play(turns)
    return local, central


def rounds_by_batch(setup: Setup) -> bool:
    """Whether a row's last bits depend on the size of its batch here, as with MKL on some Intel processors."""
    buckets, network = setup.model().buckets, setup.network()
    setup.weights(3).load_into(network)
    random, most = np.random.default_rng(0), buckets[-1]
    columns = setup.spec.columns
    memory = np.zeros((most, 2, setup.method.memory_units(setup.parameters)), np.float32)
    for _ in range(20):
        seen = of_columns(columns, [column.drawn(random, most) for column in columns])
        whole = setup.method.infer(network, seen, memory)
        for size in buckets:
            part = setup.method.infer(network, each(lambda of, size=size: of[:size], seen), memory[:size])
            if not all(torch.equal(few, many[:size]) for few, many in zip(part, whole, strict=True)):
                return True
    return False


def assert_equal_experience(first: Kept, second: Kept, *, to_rounding: bool = False) -> None:
    # byte for byte: priorities and log-probabilities show the last bit of every output
    assert_equal_segments(first, second, rounded=lambda name, column: to_rounding and column.dtype.kind == "f")
    assert len(first.reported) == len(second.reported) > 0
    for mine, theirs in zip(first.reported, second.reported, strict=True):
        assert {n: c.tolist() for n, c in mine.columns.items()} == {n: c.tolist() for n, c in theirs.columns.items()}


@pytest.mark.parametrize("name", SETUPS)
def test_central_equals_local(name: str) -> None:
    setup, turns = SETUPS[name]
    local, central = played(setup, turns, version=3)
    assert_equal_experience(local.sink, central.sink, to_rounding=rounds_by_batch(setup))
    assert (local.figures.steps, local.figures.raw_frames) == (central.figures.steps, central.figures.raw_frames)
    assert {chunk.policy_version for chunk in central.sink.chunks} == {3}
    assert {chunk.epoch for chunk in central.sink.chunks} == {7}
    if "lstm" in name:
        assert any(chunk["state"].any() for chunk in central.sink.chunks), "no memory was ever recorded"


@pytest.mark.parametrize("name", ["apex-cartpole", "impala-lstm-cartpole", "ppo-cartpole"])
def test_without_weights_both_play_the_same_random_games(name: str) -> None:
    setup, turns = SETUPS[name]
    local, central = played(setup, turns, version=0)
    assert_equal_experience(local.sink, central.sink)

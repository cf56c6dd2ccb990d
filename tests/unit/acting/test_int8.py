"""Acting in int8: what layers of each kind give is what they give in floats, up to rounding to bytes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rljob.acting.network import (
    ActingNetwork,
    Int8Trunk,
    Scale,
    acting_copy,
    choose_compute,
    computable,
)
from rljob.algorithms.compute import Compute, DeviceCompute, Measured, processor_has
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters, PPOParameters, SACParameters
from rljob.api.networks import NetworkProblem
from rljob.envs.spec import ActionLeaf
from rljob.weights.flat import WeightsProblem, snapshot

from tests.support.specs import spec_of

PONG = spec_of("Pong", (42, 42), "uint8", 4, 3)
LARGE = spec_of("Pong", (84, 84), "uint8", 4, 6)
COLOUR = spec_of("Colour", (36, 40, 3), "uint8", 2, 4)
VECTOR = spec_of("Vector", (6,), "float32", 1, 3)
NUMBERS = ActionLeaf(("reach",), "Box", (2,), "float32", low=(-1.0, -1.0), high=(1.0, 1.0))
MIXED = replace(VECTOR, action=(*VECTOR.action, NUMBERS))
ROBOT = replace(VECTOR, action=(NUMBERS,))
CENTRED = EnvironmentParameters(centre_input=True, input_scale=1 / 24)
PLAIN = EnvironmentParameters()
LARGEST_WEIGHT = 127 if processor_has("avx512_vnni", "amx_int8") else 63
INT8 = DeviceCompute(torch.device("cpu"), Compute("int8"))
needs_kernels = pytest.mark.skipif(
    not hasattr(torch.ops.onednn, "qconv2d_pointwise"), reason="torch has no int8 convolutions here"
)

CASES: dict[str, tuple[str, Any, Any, EnvironmentParameters]] = {
    "tiles, centred": ("IMPALA", ImpalaParameters(network="Compact"), PONG, CENTRED),
    "normalised, centred": ("ApeXDQN", ApeXDQNParameters(network="Compact", layer_norm=True), PONG, CENTRED),
    "Nature, two streams": ("ApeXDQN", ApeXDQNParameters(network="Nature"), LARGE, PLAIN),
    "colour, centred": ("ApeXDQN", ApeXDQNParameters(network="Compact"), COLOUR, CENTRED),
    "with a memory": ("IMPALA", ImpalaParameters(network="Compact", recurrent="LSTM", lstm_units=8), PONG, CENTRED),
    "a vector": ("IMPALA", ImpalaParameters(network="MLP"), VECTOR, PLAIN),
    "choices and numbers": ("PPO", PPOParameters(network="MLP", separate_critic=False), MIXED, PLAIN),
    "numbers": ("SAC", SACParameters(network="MLP"), ROBOT, PLAIN),
    "a vector, tanh": (
        "PPO",
        PPOParameters(network="MLP", activation="Tanh", separate_critic=False),
        VECTOR,
        PLAIN,
    ),
}


def observations(spec: Any, count: int, seed: int = 0) -> torch.Tensor:
    random, shape = np.random.default_rng(seed), (count, *spec.observation_shape)
    if spec.columns[0].dtype == np.uint8:
        return torch.from_numpy(random.integers(0, 256, shape, np.uint8))
    return torch.from_numpy(random.normal(size=shape).astype(np.float32))


def built(case: str, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    name, params, spec, env = CASES[case]
    torch.manual_seed(seed)
    method = algorithm(name)
    network = method.build(spec, params, env)
    if env.centre_input:
        network.centre(torch.randint(60, 120, network.mean.shape).float())
    return method, network, spec, method.memory_units(params)


def calibrated(network: Any, shown: torch.Tensor) -> Int8Trunk:
    trunk = Int8Trunk(acting_copy(network, Compute()))
    trunk.calibrate(shown)
    return trunk


@needs_kernels
@pytest.mark.parametrize("case", CASES)
def test_int8_gives_what_floats_give_up_to_its_rounding(case: str) -> None:
    method, network, spec, units = built(case)
    shown, memory = observations(spec, 32), torch.zeros(32, 2, units)
    exact = method.infer(acting_copy(network, Compute()), shown, memory)
    assert computable(network)
    trunk = calibrated(network, shown)
    trunk.quantize()
    found = method.infer(trunk.network, shown, memory)
    for one, other in zip(exact, found, strict=True):
        if one.numel():
            assert not torch.equal(one, other), "this is to be a test of rounded numbers"
            assert (one - other).abs().max() < 7.6 / LARGEST_WEIGHT * one.abs().max(), "0.06, or 0.12 with 7 bits"
    few = method.infer(trunk.network, shown[:4], memory[:4])
    torch.testing.assert_close(few.outputs, found.outputs[:4], rtol=1e-5, atol=1e-5)


@needs_kernels
def test_newer_weights_are_taken_at_the_next_rounding() -> None:
    method, network, spec, _ = built("tiles, centred")
    _, other, _, _ = built("tiles, centred", seed=1)
    shown, memory = observations(spec, 16), torch.zeros(16, 2, 0)
    trunk, direct = calibrated(network, shown), calibrated(other, shown)
    direct._scales = trunk._scales
    trunk.quantize(), direct.quantize()
    snapshot(other, 2, 1, {}).load_into(trunk.network)
    trunk.quantize()
    assert torch.equal(*(method.infer(each.network, shown, memory).outputs for each in (trunk, direct)))


def test_a_number_and_its_byte() -> None:
    signed, positive = Scale.of(torch.tensor([-2.0, 1.0]), 1.0), Scale.of(torch.tensor([0.0, 3.0]), 1.0)
    assert signed.bytes_of(torch.tensor([0.0])).item() == signed.zero == 128
    assert positive.bytes_of(torch.tensor([0.0, 9.0, -1.0])).tolist() == [0, 255, 0]
    assert positive.bytes_of(torch.tensor([3.0, 1.0])).tolist() == [255, 85]
    most = Scale.of(torch.cat([torch.linspace(0.0, 1.0, 99), torch.tensor([50.0])]), 0.99)
    assert most.bytes_of(torch.tensor([1.0, 50.0])).tolist() == [255, 255], "one large number costs the others nothing"
    assert Scale.of(torch.zeros(5), 0.99).bytes_of(torch.zeros(1)).item() == 0


def test_what_int8_does_not_know_is_told_apart_and_refused() -> None:
    method = algorithm("IMPALA")
    network = method.build(PONG, ImpalaParameters(network="Deep"), PLAIN)
    assert not computable(network)
    with pytest.raises(NetworkProblem, match=r"actors\.precision is INT8, but .*not Deep"):
        choose_compute(network, method.infer, observations(PONG, 4), 0, "INT8")
    assert not computable(algorithm("PPO").build(VECTOR, PPOParameters(network="MLP"), PLAIN))


@needs_kernels
@pytest.mark.parametrize(("precision", "taken"), [("INT8", True), ("Auto", False), ("FP32", False)])
def test_int8_is_taken_only_where_it_is_asked_for(precision: str, taken: bool) -> None:
    method, network, spec, units = built("tiles, centred")
    found = choose_compute(network, method.infer, observations(spec, 8), units, precision)
    assert (found.place == INT8) == taken
    assert not any("int8" in way for way in found.seconds)


def acting(case: str) -> tuple[ActingNetwork, Any, Any, int]:
    method, network, spec, units = built(case)
    return ActingNetwork(network, method, spec.all_choices, Measured(INT8, {})), network, spec, units


def played(net: ActingNetwork, spec: Any, units: int, steps: int, start: int = 0) -> None:
    for step in range(steps):
        net.infer(observations(spec, 16, seed=start + step), torch.zeros(16, 2, units))


@torch.no_grad()
def prefer_one_action(network: Any) -> None:
    network.policy.weight.zero_(), network.policy.bias.copy_(torch.tensor([0.0, 5.0, 0.0]))


@needs_kernels
def test_actions_are_compared_once_enough_is_recorded_and_again_with_other_weights() -> None:
    net, network, spec, units = acting("tiles, centred")
    net.load(snapshot(network, 1, 0, {}))
    played(net, spec, units, 8)
    assert net.document() == {"compute": "cpu int8", "compute_seconds": {}, "int8_equal_actions": None}
    played(net, spec, units, 160, 8)
    net.load(snapshot(network, 2, 0, {}))
    played(net, spec, units, 1)
    assert net.equal_actions > 0.9
    prefer_one_action(network)
    for version in range(3, 9):
        net.load(snapshot(network, version, 0, {}))
        played(net, spec, units, 4)
    assert net.document()["int8_equal_actions"] == 1.0, "one action is always the best"


@needs_kernels
@pytest.mark.parametrize(("case", "numbers"), [("choices and numbers", "policy"), ("numbers", "head")])
def test_numbers_agree_within_a_share_of_their_deviation(case: str, numbers: str) -> None:
    net, network, spec, units = acting(case)
    net.load(snapshot(network, 1, 0, {}))
    played(net, spec, units, 160)
    net.load(snapshot(network, 2, 0, {}))
    played(net, spec, units, 1)
    assert net.equal_actions >= 0.9
    with torch.no_grad():
        getattr(network, numbers).weight.mul_(1e4)  # means that lie far apart and are rounded so
    for version in range(3, 9):
        net.load(snapshot(network, version, 0, {}))
        played(net, spec, units, 4)
    assert net.equal_actions < 0.5


@needs_kernels
@pytest.mark.parametrize("batches", [(4, 4, 4, 512), (512, 4, 4, 4), (128, 64, 128, 64)])
def test_batches_of_several_sizes_are_recorded_until_there_is_enough(batches: tuple[int, ...]) -> None:
    net, network, spec, units = acting("a vector")
    net.load(snapshot(network, 1, 0, {}))
    for rows in batches:
        for _ in range(8):  # one of which is recorded
            net.infer(observations(spec, rows), torch.zeros(rows, 2, units))
    assert net.equal_actions is not None


@needs_kernels
def test_int8_that_is_asked_for_is_used_from_the_first_step_with_the_newest_weights() -> None:
    net, network, spec, units = acting("normalised, centred")
    other = built("normalised, centred", seed=3)[1]
    shown, memory = observations(spec, 16), torch.zeros(16, 2, units)
    for version, each in enumerate((network, other), 1):
        net.load(snapshot(each, version, 0, {}))
        exact = net._method.infer(acting_copy(each, Compute()), shown, memory).outputs
        found = net.infer(shown, memory).outputs
        assert not torch.equal(found, exact)
        assert (found - exact).abs().max() < 0.2 * exact.abs().max()
    with pytest.raises(WeightsProblem):
        net.load(snapshot(torch.nn.Linear(2, 2), 3, 0, {}))
